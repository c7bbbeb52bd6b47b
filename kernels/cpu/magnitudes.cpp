#include "kernels/magnitudes.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

namespace {

constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFU;
constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr int kMantissaBits = 23;

template <class T>
std::uint32_t magnitude_of(T value) noexcept {
  return std::bit_cast<std::uint32_t>(to_float(value)) & kMagnitudeMask;
}

/// Counts by the exponent field; those of subnormal numbers, zero, Inf and NaN are told apart one by one.
class FieldCounter {
 public:
  explicit FieldCounter(ExponentHistogram& into) : into_(into) {}

  void add(std::uint32_t magnitude) noexcept {
    const std::uint32_t field = magnitude >> kMantissaBits;
    ++fields_[field];
    if (field == 0 || field == kLastField) rare(magnitude);
  }
  void finish() noexcept {
    // Field 1 is 2^-126.
    for (std::size_t field = 1; field < kLastField; ++field)
      into_.bins[field + kMantissaBits - 1] += fields_[field];
  }

 private:
  static constexpr std::size_t kLastField = 255;

  void rare(std::uint32_t magnitude) noexcept {
    if (magnitude > kInfinity) {
      ++into_.nan;
    } else if (magnitude == kInfinity) {
      ++into_.inf;
    } else if (magnitude == 0) {
      ++into_.zero;
    } else {
      ++into_.bins[static_cast<std::size_t>(std::bit_width(magnitude)) - 1];  // pattern 1 is 2^-149
    }
  }

  ExponentHistogram& into_;
  std::array<std::uint64_t, kLastField + 1> fields_{};
};

}  // namespace

void add_exponents(const TensorView& x, ExponentHistogram& into) {
  constexpr std::string_view kOperation = "exponent histogram";
  require_host(kOperation, "x", x);
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    FieldCounter counter(into);
    cpu::for_each_run<T>(x, [&](const T* values, std::int64_t count, std::int64_t) {
      for (std::int64_t i = 0; i < count; ++i) counter.add(magnitude_of(values[i]));
    });
    counter.finish();
  });
}

void add_magnitudes(const TensorView& x, std::span<std::uint64_t> into) {
  constexpr std::string_view kOperation = "magnitude counts";
  require_host(kOperation, "x", x);
  AMAXSCOPE_CHECK(into.size() == kMagnitudeBuckets, ErrorCode::kUsage, "{}: {} buckets, wanted {}",
                  kOperation, into.size(), kMagnitudeBuckets);
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    cpu::for_each_run<T>(x, [&](const T* values, std::int64_t count, std::int64_t) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t magnitude = magnitude_of(values[i]);
        if (magnitude < kInfinity) ++into[magnitude >> 16U];
      }
    });
  });
}

std::uint64_t count_above(std::span<const std::uint64_t> magnitudes, double limit) noexcept {
  if (limit > static_cast<double>(std::numeric_limits<float>::max())) return 0;
  // Cut, not rounded: the float below the limit or equal to it.
  auto cut = static_cast<float>(limit);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(cut);
  if (static_cast<double>(cut) > limit) --bits;
  std::uint64_t count = 0;
  for (std::size_t i = (bits >> 16U) + 1U; i < magnitudes.size(); ++i) count += magnitudes[i];
  return count;
}

namespace {

/// What is not finite counts as 0.
template <class T>
double energy_of(T element) noexcept {
  const float value = to_float(element);
  const double kept = magnitude_of(value) < kInfinity ? static_cast<double>(value) : 0.0;
  return kept * kept;
}

/// take(row, the elements of the row).
template <class Take>
void for_each_row(std::string_view operation, const TensorView& x, const Take& take) {
  cpu::with_compute_type(operation, "x", x, [&]<class T>(std::type_identity<T>) {
    if (x.numel() == 0) return;
    const T* data = cpu::data_of<T>(x);
    const auto width = static_cast<std::size_t>(x.cols());
    for (std::int64_t row = 0; row < x.rows(); ++row)
      take(static_cast<std::size_t>(row), std::span<const T>(data + row * x.row_stride(), width));
  });
}

}  // namespace

void add_column_energies(const TensorView& x, std::span<double> into) {
  constexpr std::string_view kOperation = "column energies";
  require_host(kOperation, "x", x);
  AMAXSCOPE_CHECK(into.size() == static_cast<std::size_t>(x.cols()), ErrorCode::kUsage,
                  "{}: {} sums for {} columns", kOperation, into.size(), x.cols());
  for_each_row(kOperation, x, [&]<class T>(std::size_t, std::span<const T> values) {
    for (std::size_t col = 0; col < values.size(); ++col) into[col] += energy_of(values[col]);
  });
}

void add_row_energies(const TensorView& x, std::span<double> into) {
  constexpr std::string_view kOperation = "row energies";
  require_host(kOperation, "x", x);
  AMAXSCOPE_CHECK(into.size() == static_cast<std::size_t>(x.rows()), ErrorCode::kUsage,
                  "{}: {} sums for {} rows", kOperation, into.size(), x.rows());
  for_each_row(kOperation, x, [&]<class T>(std::size_t row, std::span<const T> values) {
    for (const T value : values) into[row] += energy_of(value);
  });
}

}  // namespace amaxscope

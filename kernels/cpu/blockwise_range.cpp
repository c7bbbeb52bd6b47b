#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/arguments.hpp"
#include "kernels/tensor_stats.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "max_blockwise_dynamic_range";
constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// Largest magnitude and smallest non-zero one, less 1 (so that zero is the largest of all), as bit patterns.
struct Extremes {
  std::uint32_t largest = 0;
  std::uint32_t smallest_less_one = kNone;

  void add(std::uint32_t magnitude) noexcept { add({magnitude, magnitude - 1U}); }
  void add(const Extremes& other) noexcept {
    largest = std::max(largest, other.largest);
    smallest_less_one = std::min(smallest_less_one, other.smallest_less_one);
  }
  /// largest / smallest; 1 when all are zero, Inf of Inf and finite ones, NaN with a NaN or Inf alone.
  [[nodiscard]] double ratio() const noexcept {
    if (largest == 0) return 1.0;
    if (largest > kInfinity || smallest_less_one + 1U == kInfinity)
      return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(std::bit_cast<float>(largest)) /
           static_cast<double>(std::bit_cast<float>(smallest_less_one + 1U));
  }
};

/// The largest ratio over blocks of band x group elements (rows x columns), cut at the edges.
template <class T>
double largest_ratio(const TensorView& x, std::int64_t band, std::int64_t group) {
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  const T* data = cpu::data_of<T>(x);
  std::vector<Extremes> columns(static_cast<std::size_t>(cols));
  double result = 1.0;
  for (std::int64_t first = 0; first < rows; first += band) {
    std::ranges::fill(columns, Extremes{});
    for (std::int64_t row = first; row < std::min(first + band, rows); ++row) {
      const T* values = data + row * x.row_stride();
      for (std::int64_t col = 0; col < cols; ++col) {
        columns[static_cast<std::size_t>(col)].add(std::bit_cast<std::uint32_t>(to_float(values[col])) &
                                                   0x7FFFFFFFU);
      }
    }
    for (std::int64_t col = 0; col < cols; col += group) {
      Extremes block;
      for (std::int64_t i = col; i < std::min(col + group, cols); ++i)
        block.add(columns[static_cast<std::size_t>(i)]);
      const double ratio = block.ratio();
      if (std::isnan(ratio)) return ratio;
      result = std::max(result, ratio);
    }
  }
  return result;
}

}  // namespace

double max_blockwise_dynamic_range(const TensorView& x, int block, int dims, bool both_orientations) {
  require_host(kOperation, "x", x);
  AMAXSCOPE_CHECK(block >= 1, ErrorCode::kUsage, "{}: a block of {} elements; give at least 1", kOperation,
                  block);
  AMAXSCOPE_CHECK(dims == 1 || dims == 2, ErrorCode::kUsage, "{}: dims {}; allowed are 1 and 2", kOperation,
                  dims);
  return cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    if (x.numel() == 0) return 0.0;
    double ratio = largest_ratio<T>(x, dims == 2 ? block : 1, block);
    // The transpose of a square tile is the same tile, so two dimensions have one orientation.
    if (both_orientations && dims == 1 && !std::isnan(ratio)) {
      const double transposed = largest_ratio<T>(x, block, 1);
      ratio = std::isnan(transposed) ? transposed : std::max(ratio, transposed);
    }
    return std::log2(ratio);  // of the ratio: the maximum and the logarithm commute
  });
}

}  // namespace amaxscope

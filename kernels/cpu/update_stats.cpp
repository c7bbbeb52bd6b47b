#include "kernels/update_stats.hpp"

#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/float_pattern.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "update_stats";

template <class T>
double as_double(T x) noexcept {
  return cpu::value_of<T>(std::bit_cast<typename cpu::FloatPattern<T>::Bits>(x));
}

/// weight is finite, update finite and not 0.
template <class T>
bool is_lost(T weight, double update) noexcept {
  using Bits = typename cpu::FloatPattern<T>::Bits;
  const auto magnitude = static_cast<Bits>(cpu::magnitude(weight));
  const bool negative = std::bit_cast<Bits>(weight) != magnitude;
  const double own = cpu::value_of<T>(magnitude);
  const bool outward = magnitude == 0 || negative == (update < 0);
  double gap = 0;  // to the neighbour in the direction of the update
  if (outward) gap = cpu::value_of<T>(static_cast<Bits>(magnitude + 1U)) - own;
  // The largest finite number has no neighbour outward: as far as the one inward.
  if (!outward || std::isinf(gap)) gap = own - cpu::value_of<T>(static_cast<Bits>(magnitude - 1U));
  const double twice = 2 * std::abs(update);
  return twice < gap || (twice == gap && (magnitude & 1U) == 0);
}

template <class W, class U>
UpdateStats stats_of_row(const W* weight, const U* update, std::int64_t count) {
  UpdateStats stats;
  for (std::int64_t i = 0; i < count; ++i) {
    const double w = as_double(weight[i]);
    const double u = as_double(update[i]);
    if (!std::isfinite(w) || !std::isfinite(u)) {
      ++stats.nonfinite;
      continue;
    }
    ++stats.pairs;
    stats.weight_squares += w * w;
    stats.update_squares += u * u;
    if (u == 0) continue;
    ++stats.nonzero;
    if (is_lost(weight[i], u)) ++stats.lost;
  }
  return stats;
}

}  // namespace

UpdateStats& UpdateStats::operator+=(const UpdateStats& other) noexcept {
  pairs += other.pairs;
  nonfinite += other.nonfinite;
  nonzero += other.nonzero;
  lost += other.lost;
  update_squares += other.update_squares;
  weight_squares += other.weight_squares;
  return *this;
}

UpdateStats update_stats(const TensorView& weight, const TensorView& update) {
  require_host(kOperation, "weight", weight);
  require_host(kOperation, "update", update);
  AMAXSCOPE_CHECK(weight.shape() == update.shape(), ErrorCode::kTensor,
                  "{}: the weight has shape {}, its update {}", kOperation, to_string(weight.shape()),
                  to_string(update.shape()));
  AMAXSCOPE_CHECK(update.dtype() == DType::kF32 || update.dtype() == DType::kF64, ErrorCode::kTensor,
                  "{}: update is {}; allowed are f32 and f64: what is to be added, not yet rounded",
                  kOperation, to_string(update.dtype()));
  UpdateStats result;
  cpu::with_real_type(kOperation, "weight", weight, [&]<class W>(std::type_identity<W>) {
    const auto rows = [&]<class U>(std::type_identity<U>) {
      if (weight.numel() == 0) return;
      for (std::int64_t row = 0; row < weight.rows(); ++row) {
        result += stats_of_row(cpu::data_of<W>(weight) + row * weight.row_stride(),
                               cpu::data_of<U>(update) + row * update.row_stride(), weight.cols());
      }
    };
    update.dtype() == DType::kF64 ? rows(std::type_identity<double>{}) : rows(std::type_identity<float>{});
  });
  return result;
}

}  // namespace amaxscope

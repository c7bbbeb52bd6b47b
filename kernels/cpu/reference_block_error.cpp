#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/codec/fp4.hpp"
#include "kernels/cpu/block_error_loops.hpp"

namespace amaxscope::cpu {

namespace {

void add(const float* x, const float* values, std::size_t steps, const LaneScales& scales, LaneErrors& sums) {
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t lane = 0; lane < kErrorLanes; ++lane) {
      const std::size_t i = step * kErrorLanes + lane;
      const float scale = scales.scale[lane];
      const float q = values[i] * scale;
      const float magnitude = std::abs(x[i]);
      const auto original = static_cast<double>(x[i]);
      const auto decoded = static_cast<double>(q);
      const double error = original - decoded;
      const double square = original * original;
      sums.error_squares[lane] += error * error;
      sums.signal_squares[lane] += square;
      sums.quantized_squares[lane] += decoded * decoded;
      sums.products[lane] += original * decoded;
      sums.overflows[lane] += magnitude > scales.limit[lane] ? 1U : 0U;
      if (magnitude / scale >= scales.saturates_from) {
        ++sums.saturated[lane];
        sums.saturated_squares[lane] += square;
      }
      if (magnitude > 0.0F && q == 0.0F) {
        ++sums.underflows[lane];
        sums.flushed_squares[lane] += square;
      }
      sums.largest[lane] = std::max(sums.largest[lane], std::bit_cast<std::uint32_t>(magnitude));
      // In fp32 as good as in double: where the difference of two fp32 is not exact in double, both round to
      // the larger of them.
      const float difference = std::abs(x[i] - q);
      sums.max_error[lane] = std::max(sums.max_error[lane], std::bit_cast<std::uint32_t>(difference));
    }
  }
}

void interleave(const float* rows, std::size_t stride, std::size_t steps, float* out) {
  for (std::size_t lane = 0; lane < kErrorLanes; ++lane) {
    for (std::size_t step = 0; step < steps; ++step) {
      out[step * kErrorLanes + lane] = rows[lane * stride + step];
    }
  }
}

template <class T>
void widen(const T* x, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = to_float(x[i]);
}

void decode_e2m1_pairs(const std::uint8_t* pairs, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = decode_e2m1(static_cast<std::uint8_t>(pairs[i / 2] >> (i % 2 * 4)));
  }
}

}  // namespace

constexpr BlockErrorLoops kReferenceBlockErrors{.add = add,
                                                .interleave = interleave,
                                                .widen_bf16 = widen<BF16>,
                                                .widen_f16 = widen<F16>,
                                                .decode_e2m1 = decode_e2m1_pairs};

}  // namespace amaxscope::cpu

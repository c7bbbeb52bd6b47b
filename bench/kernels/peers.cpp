#include "bench/kernels/peers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#ifdef AMAXSCOPE_BENCH_CUDA_FP8
#include <cuda_fp8.h>
#endif

#include "kernels/codec/fp8.hpp"

namespace amaxscope::bench {

float loop_amax(const float* x, std::size_t count) {
  float result = 0;
  for (std::size_t i = 0; i < count; ++i) result = std::max(result, std::abs(x[i]));
  return result;
}

double nine_passes(const float* x, std::size_t count) {
  float least = x[0];
  for (std::size_t i = 0; i < count; ++i) least = std::min(least, x[i]);
  float greatest = x[0];
  for (std::size_t i = 0; i < count; ++i) greatest = std::max(greatest, x[i]);
  const float amax = loop_amax(x, count);
  float amin = amax;
  for (std::size_t i = 0; i < count; ++i) amin = std::min(amin, x[i] != 0 ? std::abs(x[i]) : amin);
  std::uint32_t nonzero = 0;
  for (std::size_t i = 0; i < count; ++i) nonzero += x[i] != 0 ? 1U : 0U;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]);
  double l1 = 0;
  for (std::size_t i = 0; i < count; ++i) l1 += static_cast<double>(std::abs(x[i]));
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  std::uint32_t not_finite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    not_finite += (std::bit_cast<std::uint32_t>(x[i]) & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
  }
  return static_cast<double>(least + greatest + amax + amin) + nonzero + not_finite + sum + l1 + squares;
}

void naive_cast_transpose(const float* x, std::size_t rows, std::size_t cols, float scale,
                          std::uint8_t* codes, std::uint8_t* transposed) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < cols; ++col) {
      const std::uint8_t code = encode_fp8<DType::kE4M3>(x[row * cols + col] * scale);
      codes[row * cols + col] = code;
      transposed[col * rows + row] = code;
    }
  }
}

#ifdef AMAXSCOPE_BENCH_CUDA_FP8
bool have_nvidia_conversion() { return true; }
void nvidia_cast(const float* x, std::size_t count, float scale, std::uint8_t* codes) {
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = __nv_cvt_float_to_fp8(x[i] * scale, __NV_SATFINITE, __NV_E4M3);
}
#else
bool have_nvidia_conversion() { return false; }
void nvidia_cast(const float*, std::size_t, float, std::uint8_t*) {}
#endif

}  // namespace amaxscope::bench

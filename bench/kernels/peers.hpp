// What one would do without these kernels. Plain loops compiled as a user compiles them, and NVIDIA's
// conversion.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/half.hpp"

namespace amaxscope::bench {

float loop_amax(const float* x, std::size_t count);
/// Minimum, maximum, amax, smallest non-zero magnitude, non-zeros, sum, l1, sum of squares and non-finite
/// count, a pass over memory each, vectorized (-ffast-math, so that the compiler may). Returns something that
/// depends on all.
double nine_passes(const float* x, std::size_t count);
void naive_cast_transpose(const float* x, std::size_t rows, std::size_t cols, float scale,
                          std::uint8_t* codes, std::uint8_t* transposed);

bool have_nvidia_conversion();
/// __nv_cvt_float_to_fp8 (host), E4M3, saturating.
void nvidia_cast(const float* x, std::size_t count, float scale, std::uint8_t* codes);

}  // namespace amaxscope::bench

// By how much of a grid step elements were moved: what tells honest rounding from a biased or a repeated one.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

/// out[k] = (code - x / scale) / step for the element at place k * numel / out.size() of x, step being the
/// distance of the codes around |x| / scale: within +-1/2 for rounding to nearest, +-1 for stochastic
/// rounding. NaN for an element that was not rounded: zero, not finite, beyond the largest code, under a
/// scale of 0. The places depend on the shape alone. More places than elements: all NaN.
/// x as in quantization_error; of rotated codes it is x rotated. CPU. Throws Error(kTensor).
void sampled_rounding_errors(const TensorView& x, const BlockScaledView& codes, std::span<float> out);

}  // namespace amaxscope

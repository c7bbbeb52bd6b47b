// By how much of a grid step elements were moved: what tells honest rounding from a biased or a repeated one.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

/// errors[k] = (code - x / scale) / step for the element at place k * numel / errors.size() of x, step being
/// the distance of the codes around |x| / scale: within +-1/2 for rounding to nearest, +-1 for stochastic
/// rounding. NaN for an element that was not rounded: zero, not finite, beyond the largest code, under a
/// scale of 0. The places depend on the shape alone. More places than elements: all NaN.
/// outward[k] = errors[k] times the sign of x: positive where the magnitude was rounded up. Stochastic
/// rounding draws for magnitudes, so it is here that repeated random numbers show whatever the signs do.
/// Of the same size as errors.
/// x as in quantization_error; of rotated codes it is x rotated. CPU. Throws Error(kTensor).
void sampled_rounding_errors(const TensorView& x, const BlockScaledView& codes, std::span<float> errors,
                             std::span<float> outward);

}  // namespace amaxscope

// Codes against their original: what the logging features feed. Free functions.
#pragma once

#include <string>
#include <vector>

#include "kernels/codec/scale.hpp"
#include "runtime/feature/feature.hpp"
#include "runtime/stats/quantization_accumulator.hpp"

namespace amaxscope {

/// Of a few thousand elements, as kernels/rounding_error.hpp has it.
struct SampledRounding {
  std::vector<float> errors;
  std::vector<float> outward;
};

struct Measured {
  BlockQuantizationError error;
  std::vector<std::string> flags;  ///< of the scale
  std::string format;              ///< of the codes, as records name it
  float scale = 0.0F;              ///< of codes under one scale; else 0
  SampledRounding rounding;        ///< empty when not asked for or when there are too few
};

/// Places at which rounding errors are sampled.
inline constexpr std::size_t kRoundingSamples = 4096;

std::vector<std::string> flags_of(ScaleClamp clamp);

/// The codes that a GEMM gets of a tensor in a direction; null when that is in high precision.
const QuantizedTensor* codes_in(const QuantizedTensor* operand, Direction direction);

/// codes: from codes_in, FP8 under one scale or block-scaled. x has its shape.
/// quantizer: the recipe's, for what it says of its scale; null: nothing is said.
Measured measure_codes(const TensorView& x, const QuantizedTensor& codes, Direction direction,
                       const Quantizer* quantizer, bool with_rounding);
/// Only the scales, where there is no original.
BlockQuantizationError scales_of(const QuantizedTensor& codes, Direction direction);

}  // namespace amaxscope

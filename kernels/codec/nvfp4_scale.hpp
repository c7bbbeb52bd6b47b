// NVFP4's two levels of scales: an fp32 amax A of the tensor and an E4M3 byte for each block.
//   S  = min(RN(6 F / A), FLT_MAX), F = 448 (or 256 for "four over six"); 1 when A or S is 0 (A is Inf)
//   sb = E4M3(RN(block_amax * RN(S * RN(1/6))))           saturating
//   e  = min(RN(1 / RN(sb * RN(1 / S))), FLT_MAX)          codes are e2m1(RN(x * e))
// Source: TransformerEngine's core_nvfp4.cuh and quantize_4over6_nvfp4.cuh. Shared by host and device; pure.
#pragma once

#include <cstdint>

#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"

namespace amaxscope {

struct Nvfp4TensorLevel {
  float encode = 1.0F;        ///< S
  float decode = 1.0F;        ///< RN(1 / S)
  float block_factor = 1.0F;  ///< RN(S * RN(1/6))
};

constexpr Nvfp4TensorLevel nvfp4_tensor_level(float amax, float scale_max) noexcept {
  float encode = kFp4Max * scale_max / amax;  // the product is exact
  if (encode > kFloatMax) encode = kFloatMax;
  if (amax == 0.0F || encode == 0.0F) encode = 1.0F;
  return {encode, 1.0F / encode, encode * (1.0F / kFp4Max)};
}

/// The byte of a block's scale, from a value >= 0; Inf gives 448.
constexpr std::uint8_t encode_block_scale(float value) noexcept { return encode_fp8<DType::kE4M3>(value); }

/// e: what elements are multiplied by before they are encoded.
constexpr float nvfp4_encode_multiplier(std::uint8_t block_scale, const Nvfp4TensorLevel& level) noexcept {
  const float multiplier = 1.0F / (decode_fp8<DType::kE4M3>(block_scale) * level.decode);
  return multiplier < kFloatMax ? multiplier : kFloatMax;
}

}  // namespace amaxscope

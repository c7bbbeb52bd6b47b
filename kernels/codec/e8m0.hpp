// E8M0, the power-of-two scale byte of MXFP8: byte b is 2^(b-127), 255 is NaN. Shared by host and device;
// pure. Rounding is up in magnitude, so that codes made under the scale never clip; as in the CUDA toolkit's
// cuda_fp8.h (cudaRoundPosInf, __NV_SATFINITE).
#pragma once

#include <bit>
#include <cstdint>

namespace amaxscope {

constexpr std::uint8_t kE8M0NaN = 0xFF;

/// The smallest power of two that is at least |value|: 0 and everything up to 2^-127 give 0, above 2^127 and
/// Inf give 254, NaN gives 255. The sign is ignored.
constexpr std::uint8_t encode_e8m0(float value) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return kE8M0NaN;
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = magnitude & 0x7FFFFFU;
  // 0x400000 as a subnormal is 2^-127, which byte 0 stands for.
  const bool covered = exponent == 0 ? mantissa <= 0x400000U : mantissa == 0;
  const std::uint32_t rounded = exponent + (covered ? 0U : 1U);
  return static_cast<std::uint8_t>(rounded < 254U ? rounded : 254U);
}

/// 2^(b-127); exact, 2^-127 is an fp32 subnormal.
constexpr float decode_e8m0(std::uint8_t code) noexcept {
  if (code == kE8M0NaN) return std::bit_cast<float>(0x7FC00000U);
  if (code == 0) return std::bit_cast<float>(0x00400000U);
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

/// 2^(127-b): what elements are multiplied by before they are encoded.
constexpr float e8m0_encode_multiplier(std::uint8_t code) noexcept {
  return code == kE8M0NaN ? decode_e8m0(kE8M0NaN) : decode_e8m0(static_cast<std::uint8_t>(254U - code));
}

}  // namespace amaxscope

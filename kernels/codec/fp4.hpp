// FP4 codec, E2M1: codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign. Shared by host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/codec/grid.hpp"
#include "kernels/codec/minifloat.hpp"

namespace amaxscope {

constexpr float kFp4Max = code_grid(DType::kE2M1).max;

/// Nearest code, ties to even; beyond 6 and Inf: +-6; NaN becomes +6 (0x7), as in the CUDA toolkit's
/// cuda_fp4.h.
constexpr std::uint8_t encode_e2m1(float value) noexcept {
  constexpr std::uint32_t kMaxMagnitude = std::bit_cast<std::uint32_t>(kFp4Max);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = magnitude < kMaxMagnitude ? magnitude : kMaxMagnitude;
  const std::uint32_t code = round_to_minifloat<1, 1>(clamped) | ((bits >> 28) & 0x8U);
  return static_cast<std::uint8_t>(magnitude > 0x7F800000U ? 0x7U : code);
}

/// Stochastic rounding with eight random bits: of the two codes around the value the upper (in magnitude)
/// with a probability of the distance from the lower, in steps of 1/256. A value on the grid stays. Beyond 6,
/// Inf and NaN as encode_e2m1. Source: TransformerEngine's ptx.cuh (stochastic_round_fp4_e2m1).
constexpr std::uint8_t encode_e2m1_stochastic(float value, std::uint8_t random) noexcept {
  constexpr std::uint32_t kMaxMagnitude = std::bit_cast<std::uint32_t>(kFp4Max);
  constexpr std::uint32_t kOne = std::bit_cast<std::uint32_t>(1.0F);
  constexpr std::uint32_t kExponentStep = 1U << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = magnitude < kMaxMagnitude ? magnitude : kMaxMagnitude;
  // Half the power of two below the value, at least 0.5: the distance of the codes around it.
  const std::uint32_t power = clamped & 0x7F800000U;
  const float step = std::bit_cast<float>((power > kOne ? power : kOne) - kExponentStep);
  const float moved = std::bit_cast<float>(clamped) + static_cast<float>(random) * 0x1p-8F * step;
  // The code below: from 1 on its exponent and first mantissa bit are those of the value.
  const std::uint32_t moved_bits = std::bit_cast<std::uint32_t>(moved);
  const std::uint32_t below_one = moved >= 0.5F ? 1U : 0U;
  const std::uint32_t code = moved_bits < kOne ? below_one : (moved_bits >> 22) - (kOne >> 22) + 2U;
  return static_cast<std::uint8_t>(magnitude > 0x7F800000U ? 0x7U : code | ((bits >> 28) & 0x8U));
}

/// Only the low four bits of the code are read.
constexpr float decode_e2m1(std::uint8_t code) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8U) << 28;
  const std::uint32_t magnitude = code & 0x7U;
  if (magnitude >= 2) return std::bit_cast<float>(sign | ((magnitude << 22) + (126U << 23)));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0.5F));
}

/// Two codes in a byte: the element of even index in the low nibble.
constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) noexcept {
  return static_cast<std::uint8_t>((even & 0xFU) | ((odd & 0xFU) << 4));
}
constexpr std::uint8_t unpack_e2m1_even(std::uint8_t pair) noexcept { return pair & 0xFU; }
constexpr std::uint8_t unpack_e2m1_odd(std::uint8_t pair) noexcept {
  return static_cast<std::uint8_t>(pair >> 4);
}

}  // namespace amaxscope

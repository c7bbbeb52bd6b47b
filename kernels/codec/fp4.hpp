// FP4 codec, E2M1: codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign. Shared by host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/codec/minifloat.hpp"

namespace amaxscope {

/// Nearest code, ties to even; beyond 6 and Inf: +-6; NaN becomes +6 (0x7), as in the CUDA toolkit's
/// cuda_fp4.h.
constexpr std::uint8_t encode_e2m1(float value) noexcept {
  constexpr std::uint32_t kMaxMagnitude = std::bit_cast<std::uint32_t>(6.0F);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = magnitude < kMaxMagnitude ? magnitude : kMaxMagnitude;
  const std::uint32_t code = round_to_minifloat<1, 1>(clamped) | ((bits >> 28) & 0x8U);
  return static_cast<std::uint8_t>(magnitude > 0x7F800000U ? 0x7U : code);
}

/// Stochastic rounding with eight random bits: of the two codes around the value the upper (in magnitude)
/// with a probability of the distance from the lower, in steps of 1/256. A value on the grid stays. Beyond 6,
/// Inf and NaN as encode_e2m1. Source: TransformerEngine's ptx.cuh (stochastic_round_fp4_e2m1).
inline std::uint8_t encode_e2m1_stochastic(float value, std::uint8_t random) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return 0x7U;
  const auto sign = static_cast<std::uint8_t>((bits >> 28) & 0x8U);
  constexpr float kMax = 6.0F;
  const float a = std::bit_cast<float>(magnitude);
  if (a >= kMax) return static_cast<std::uint8_t>(sign | 0x7U);
  const auto step_at = [](float x) { return x >= 4.0F ? 2.0F : x >= 2.0F ? 1.0F : 0.5F; };
  // The step is that of the value, the grid rounded down to that of the sum; the product is exact.
  const float moved = a + static_cast<float>(random) * 0x1p-8F * step_at(a);
  const float step = step_at(moved);
  const float rounded = static_cast<float>(static_cast<int>(moved / step)) * step;
  return static_cast<std::uint8_t>(sign | encode_e2m1(rounded < kMax ? rounded : kMax));
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

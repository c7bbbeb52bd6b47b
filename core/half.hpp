// Conversions between fp32 and the 16-bit float types, shared by host and device code.
// fp32 -> bf16 and fp16 round to nearest, ties to even; NaN becomes the quiet NaN 0x7FFF, as in the CUDA
// toolkit's cuda_bf16.h and cuda_fp16.h. Widening is exact. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace amaxscope {

struct BF16 {
  std::uint16_t bits = 0;
};
struct F16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(float x) noexcept { return x; }
constexpr float to_float(double x) noexcept { return static_cast<float>(x); }
constexpr float to_float(BF16 x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

constexpr float to_float(F16 x) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = x.bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr BF16 to_bf16(float x) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FFF};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

constexpr F16 to_f16(float x) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  if (magnitude > 0x7F800000U) return {0x7FFF};
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // rounds past 65504
  std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  int shift = 13;
  std::uint32_t base = 0;
  if (exponent < -14) {
    shift += -14 - exponent;
    if (shift > 25) return {sign};
  } else {
    base = static_cast<std::uint32_t>(exponent + 14) << 10;  // the implicit bit adds one more
  }
  const std::uint32_t remainder = significand & ((1U << shift) - 1U);
  const std::uint32_t half = 1U << (shift - 1);
  significand >>= shift;
  significand +=
      static_cast<std::uint32_t>(remainder > half || (remainder == half && (significand & 1U) != 0));
  return {static_cast<std::uint16_t>(sign | (base + significand))};
}

}  // namespace amaxscope

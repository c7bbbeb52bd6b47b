// FP8 codecs, E4M3 (fn) and E5M2: fp32 to code with saturation, and back. Shared by host and device; pure.
// Bit for bit the CUDA toolkit's saturating conversions (cuda_fp8.h, __NV_SATFINITE), which are what the
// reference's cast kernels use.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"
#include "core/half.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/minifloat.hpp"

namespace amaxscope {

template <DType kFormat>
struct Fp8Traits {
  static_assert(is_fp8(kFormat));
  static constexpr CodeGrid kGrid = code_grid(kFormat);
  static constexpr int kMantissaBits = kGrid.mantissa_bits;
  static constexpr int kBias = 1 - kGrid.min_exponent;
  static constexpr std::uint32_t kMaxMagnitude = std::bit_cast<std::uint32_t>(kGrid.max);
  static constexpr std::uint32_t kSaturatesFrom = std::bit_cast<std::uint32_t>(kGrid.saturates_from);
};

constexpr std::uint8_t kFp8NaN = 0x7F;  ///< what every NaN encodes to, whatever its sign

/// Nearest code, ties to even; beyond the maximum and Inf: the largest code; -0 keeps its sign.
template <DType kFormat>
constexpr std::uint8_t encode_fp8(float value) noexcept {
  using Traits = Fp8Traits<kFormat>;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t clamped = magnitude < Traits::kMaxMagnitude ? magnitude : Traits::kMaxMagnitude;
  const std::uint32_t code =
      round_to_minifloat<Traits::kMantissaBits, Traits::kBias>(clamped) | ((bits >> 24) & 0x80U);
  return static_cast<std::uint8_t>(magnitude > 0x7F800000U ? std::uint32_t{kFp8NaN} : code);
}

/// Exact. E4M3 0x7F and 0xFF are NaN; E5M2 has NaN and Inf as IEEE types have.
template <DType kFormat>
constexpr float decode_fp8(std::uint8_t code) noexcept {
  if constexpr (kFormat == DType::kE5M2) {
    return to_float(F16{static_cast<std::uint16_t>(code << 8)});  // the upper byte of an fp16
  } else {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
    const std::uint32_t magnitude = code & 0x7FU;
    if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000U);
    if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9F));
  }
}

/// True for +0 and -0 of either format.
constexpr bool is_fp8_zero(std::uint8_t code) noexcept { return (code & 0x7FU) == 0; }

template <DType kFormat>
consteval std::array<float, 256> decoded_fp8() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = decode_fp8<kFormat>(static_cast<std::uint8_t>(code));
  }
  return values;
}

/// decode_fp8 of every code.
template <DType kFormat>
inline constexpr std::array<float, 256> kFp8Values = decoded_fp8<kFormat>();

}  // namespace amaxscope

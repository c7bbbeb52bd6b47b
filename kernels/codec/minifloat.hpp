// Rounding of fp32 magnitudes to the grid of a small float format: what the FP8 and FP4 codecs share.
// Branch-free, so that loops over it vectorize; constexpr, so that host and device compile the same text.
#pragma once

#include <bit>
#include <cstdint>

namespace amaxscope {

/// The code (without sign) of the value nearest to a magnitude, ties to the even code, gradual underflow.
/// magnitude: bit pattern of a non-negative fp32 that is at most the format's largest value (callers clamp,
/// which is what makes the cast saturate). Device code must not contract a product into the addition.
template <int kMantissaBits, int kBias>
constexpr std::uint32_t round_to_minifloat(std::uint32_t magnitude) noexcept {
  constexpr int kDropped = 23 - kMantissaBits;
  constexpr std::uint32_t kMinNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  // A power of two whose fp32 spacing is the smallest subnormal: adding it makes the FP adder round to the
  // grid.
  constexpr std::uint32_t kAligner = static_cast<std::uint32_t>(127 + 23 - (kBias - 1 + kMantissaBits)) << 23;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAligner)) -
      kAligner;
  const std::uint32_t odd = (magnitude >> kDropped) & 1U;
  const std::uint32_t half_less_one = (1U << (kDropped - 1)) - 1U;
  const std::uint32_t rebias = static_cast<std::uint32_t>(127 - kBias) << kMantissaBits;
  const std::uint32_t normal = ((magnitude + half_less_one + odd) >> kDropped) - rebias;
  return magnitude < kMinNormal ? subnormal : normal;
}

}  // namespace amaxscope

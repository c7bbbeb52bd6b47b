// Double to the narrower high-precision types, rounded once: going through fp32 would round twice.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/half.hpp"

namespace amaxscope {

/// x as fp32 rounded to odd (Boldo and Melquiond): truncated, with the last bit set when that lost something.
/// Rounding the result to a type with at least two fewer bits gives the correctly rounded x.
inline float round_to_odd(double x) noexcept {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const bool away_from_zero = x < 0 ? back < x : back > x;
  if (away_from_zero) --bits;
  return std::bit_cast<float>(bits | 1U);
}

/// RN(x) in T: double, float, F16 or BF16.
template <class T>
T narrow(double x) noexcept {
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(round_to_odd(x));
  } else if constexpr (std::is_same_v<T, F16>) {
    return to_f16(round_to_odd(x));
  } else {
    return static_cast<T>(x);
  }
}

/// RN(x) in T: double (exact), float, F16 or BF16.
template <class T>
T narrow(float x) noexcept {
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(x);
  } else if constexpr (std::is_same_v<T, F16>) {
    return to_f16(x);
  } else {
    return static_cast<T>(x);
  }
}

}  // namespace amaxscope

// Bit patterns of the types that tensors are computed in. Private to kernels/cpu; pure.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "core/half.hpp"

namespace amaxscope::cpu {

/// Bits: as wide as T. Magnitudes (patterns without the sign) are ordered as the numbers are, also as signed
/// integers, of which SSE2 has a maximum; every NaN is above kInfinity.
template <class T>
struct FloatPattern;
template <>
struct FloatPattern<double> {
  using Bits = std::uint64_t;
  using Magnitude = std::int64_t;
  static constexpr Magnitude kInfinity = 0x7FF0000000000000;
};
template <>
struct FloatPattern<float> {
  using Bits = std::uint32_t;
  using Magnitude = std::int32_t;
  static constexpr Magnitude kInfinity = 0x7F800000;
};
template <>
struct FloatPattern<F16> {
  using Bits = std::uint16_t;
  using Magnitude = std::int16_t;
  static constexpr Magnitude kInfinity = 0x7C00;
};
template <>
struct FloatPattern<BF16> {
  using Bits = std::uint16_t;
  using Magnitude = std::int16_t;
  static constexpr Magnitude kInfinity = 0x7F80;
};

template <class T>
constexpr typename FloatPattern<T>::Magnitude magnitude(T value) noexcept {
  using Magnitude = typename FloatPattern<T>::Magnitude;
  return static_cast<Magnitude>(std::bit_cast<Magnitude>(value) & std::numeric_limits<Magnitude>::max());
}

/// The number of a pattern, exactly.
template <class T>
constexpr double value_of(typename FloatPattern<T>::Bits bits) noexcept {
  const T value = std::bit_cast<T>(bits);
  if constexpr (sizeof(T) == 2) {
    return static_cast<double>(to_float(value));
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace amaxscope::cpu

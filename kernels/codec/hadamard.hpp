// The "random" Hadamard transform of NVFP4: y = x * diag(s) * H / 4 on groups of 16, H the Sylvester-Hadamard
// matrix, s a fixed vector of signs. Orthogonal. Source of the signs: TransformerEngine's nvfp4_tensor.py
// (get_wgrad_sign_vector). Shared by host and device; pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amaxscope {

inline constexpr std::size_t kHadamardSize = 16;

/// s[i]: 1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1. From a mask, because device code cannot
/// index an array of constants.
constexpr float hadamard_sign(std::size_t i) noexcept {
  constexpr std::uint32_t kNegative = 0xD7E8U;
  return ((kNegative >> i) & 1U) != 0 ? -1.0F : 1.0F;
}

namespace hadamard {

/// One stage of the butterfly: 8 sums and 8 differences of values kHalf apart. Loops of known length, so that
/// device code keeps x in registers.
template <std::size_t kHalf, class T>
constexpr void stage(T* x) noexcept {
  for (std::size_t pair = 0; pair < kHadamardSize / 2; ++pair) {
    const std::size_t i = pair / kHalf * (2 * kHalf) + pair % kHalf;
    const T a = x[i];
    const T b = x[i + kHalf];
    x[i] = a + b;
    x[i + kHalf] = a - b;
  }
}

/// x = x * H / 4, H symmetric: a butterfly of 64 additions. Each addition rounds in T.
template <class T>
constexpr void multiply(T* x) noexcept {
  stage<1>(x);
  stage<2>(x);
  stage<4>(x);
  stage<8>(x);
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(0.25F);
}

}  // namespace hadamard

/// The transform of 16 values in place.
template <class T>
constexpr void rotate(T* x) noexcept {
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(hadamard_sign(i));
  hadamard::multiply(x);
}

/// Its inverse, which is the transpose.
template <class T>
constexpr void rotate_back(T* x) noexcept {
  hadamard::multiply(x);
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(hadamard_sign(i));
}

}  // namespace amaxscope

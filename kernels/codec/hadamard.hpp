// The "random" Hadamard transform of NVFP4: y = x * diag(s) * H / 4 on groups of 16, H the Sylvester-Hadamard
// matrix, s a fixed vector of signs. Orthogonal. Source of the signs: TransformerEngine's nvfp4_tensor.py
// (get_wgrad_sign_vector). Shared by host and device; pure.
#pragma once

#include <array>
#include <cstddef>

namespace amaxscope {

inline constexpr std::size_t kHadamardSize = 16;
inline constexpr std::array<float, kHadamardSize> kHadamardSigns = {1,  1,  1,  -1, 1,  -1, -1, -1,
                                                                    -1, -1, -1, 1,  -1, 1,  -1, -1};

namespace hadamard {

/// x = x * H / 4, H symmetric: a butterfly of 64 additions. Each addition rounds in T.
template <class T>
constexpr void multiply(T* x) noexcept {
  for (std::size_t half = 1; half < kHadamardSize; half *= 2) {
    for (std::size_t first = 0; first < kHadamardSize; first += 2 * half) {
      for (std::size_t i = first; i < first + half; ++i) {
        const T a = x[i];
        const T b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(0.25F);
}

}  // namespace hadamard

/// The transform of 16 values in place.
template <class T>
constexpr void rotate(T* x) noexcept {
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(kHadamardSigns[i]);
  hadamard::multiply(x);
}

/// Its inverse, which is the transpose.
template <class T>
constexpr void rotate_back(T* x) noexcept {
  hadamard::multiply(x);
  for (std::size_t i = 0; i < kHadamardSize; ++i) x[i] *= static_cast<T>(kHadamardSigns[i]);
}

}  // namespace amaxscope

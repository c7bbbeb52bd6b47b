// What the kernels of this folder are made of: 16-byte vectors of elements, conversions with the instructions
// the architecture has, memory of a block. The same text is compiled by nvcc and, for the tests, by a C++
// compiler with the emulator's <cuda_runtime.h> (tests/emulator); what differs between the two is in this
// file only.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "core/dtype.hpp"
#include "core/half.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"

namespace amaxscope::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000U;

#ifdef __CUDACC__

/// The block's object of this type, one for each type; not initialised.
template <class T>
__device__ T& shared() {
  __shared__ T object;
  return object;
}
template <class V>
__device__ V load(const V* from) {
  return __ldg(from);
}
template <class V>
__device__ void store(V* to, V value) {
  *to = value;
}

#else

using emulator::shared;
template <class V>
V load(const V* from) {
  emulator::require_aligned(from, sizeof(V));
  return *from;
}
template <class V>
void store(V* to, V value) {
  emulator::require_aligned(to, sizeof(V));
  *to = value;
}

#endif

// --- conversions; bit for bit those of kernels/codec

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BF16 x) { return to_float(x); }
__device__ inline float widen(F16 x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
#else
  return to_float(x);
#endif
}

/// RN(x) in T.
template <class T>
__device__ T round_to(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
#ifdef __CUDA_ARCH__
    T result;
    if constexpr (std::is_same_v<T, BF16>) {
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    } else {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    }
    return result;
#else
    if constexpr (std::is_same_v<T, BF16>) {
      return to_bf16(x);
    } else {
      return to_f16(x);
    }
#endif
  }
}

/// Two codes, that of a in the low byte.
template <DType kFormat>
__device__ std::uint32_t encode_fp8_pair(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint16_t pair;
  if constexpr (kFormat == DType::kE4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  }
  return pair;
#else
  return encode_fp8<kFormat>(a) | (static_cast<std::uint32_t>(encode_fp8<kFormat>(b)) << 8);
#endif
}

/// Two codes in a byte, that of a in the low nibble.
__device__ inline std::uint32_t encode_e2m1_pair(float a, float b) {
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) || defined(__CUDA_ARCH_SPECIFIC__)
#if __CUDA_ARCH__ >= 1000
#define AMAXSCOPE_HAS_E2M1_CONVERSION
#endif
#endif
#ifdef AMAXSCOPE_HAS_E2M1_CONVERSION
  std::uint32_t pair;
  asm("{\n .reg .b8 codes;\n cvt.rn.satfinite.e2m1x2.f32 codes, %1, %2;\n cvt.u32.u8 %0, codes;\n}"
      : "=r"(pair)
      : "f"(b), "f"(a));
  return pair;
#else
  return pack_e2m1(encode_e2m1(a), encode_e2m1(b));
#endif
}

/// Magnitude as an integer that orders as the float does, 0 for NaN (kernels/amax.hpp).
__device__ inline std::uint32_t amax_key(float x) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
  return magnitude > kInfinityBits ? 0U : magnitude;
}
__device__ inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

// --- vectors

/// 16 bytes of elements.
template <class T>
struct Pack {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  std::uint32_t words[4];

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return std::bit_cast<float>(words[i]);
    } else {
      return widen(T{static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))});
    }
  }
  __device__ void set(int i, T value) {
    if constexpr (sizeof(T) == 4) {
      words[i] = std::bit_cast<std::uint32_t>(value);
    } else {
      words[i / 2] |= static_cast<std::uint32_t>(value.bits) << (i % 2 * 16);
    }
  }
};

template <class T>
__device__ Pack<T> zero_pack() {
  return {{0U, 0U, 0U, 0U}};
}
template <class T>
__device__ Pack<T> load_pack(const T* aligned) {
  const uint4 v = load(reinterpret_cast<const uint4*>(aligned));
  return {{v.x, v.y, v.z, v.w}};
}
template <class T>
__device__ void store_pack(T* aligned, const Pack<T>& pack) {
  store(reinterpret_cast<uint4*>(aligned), uint4{pack.words[0], pack.words[1], pack.words[2], pack.words[3]});
}

__device__ inline bool is_aligned(const void* address, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

/// FP8 codes of a pack's elements, four to a word.
template <class T>
struct Fp8Codes {
  std::uint32_t words[Pack<T>::kCount / 4];
};
template <DType kFormat, class T, class FactorOf>
__device__ Fp8Codes<T> encode_pack(const Pack<T>& pack, FactorOf factor_of) {
  Fp8Codes<T> codes;
#pragma unroll
  for (int i = 0; i < Pack<T>::kCount; i += 4) {
    const std::uint32_t low =
        encode_fp8_pair<kFormat>(pack[i] * factor_of(i), pack[i + 1] * factor_of(i + 1));
    const std::uint32_t high =
        encode_fp8_pair<kFormat>(pack[i + 2] * factor_of(i + 2), pack[i + 3] * factor_of(i + 3));
    codes.words[i / 4] = low | (high << 16);
  }
  return codes;
}
/// to: aligned to as many bytes as the pack has elements.
template <class T>
__device__ void store_codes(std::uint8_t* to, const Fp8Codes<T>& codes) {
  if constexpr (Pack<T>::kCount == 4) {
    store(reinterpret_cast<std::uint32_t*>(to), codes.words[0]);
  } else {
    store(reinterpret_cast<uint2*>(to), uint2{codes.words[0], codes.words[1]});
  }
}

// --- within a warp

/// The largest over groups of kLanes neighbouring lanes; every lane has it. All lanes take part.
template <int kLanes>
__device__ std::uint32_t largest_of_group(std::uint32_t value) {
  if constexpr (kLanes == 32) {
    return __reduce_max_sync(kAllLanes, value);
  } else {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      value = larger(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
  }
}

}  // namespace amaxscope::cuda

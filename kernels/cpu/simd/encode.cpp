// Casts to FP8 codes.
#include <algorithm>

#define HWY_WANT_AVX3_DL
#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/encode.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd/encode-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Whole vectors from `first` on; returns where they end.
template <bool kStreamed, class E, class T>
HWY_INLINE std::size_t encode_whole(const E& encoder, const T* x, std::size_t first, std::size_t count,
                                    std::uint8_t* codes) {
  std::size_t i = first;
  for (; i + kBytes <= count; i += kBytes) {
    prefetch<kBytes * sizeof(T)>(x + i);
    if constexpr (kStreamed) {
      hn::Stream(encoder(x + i), Bytes(), codes + i);
    } else {
      hn::StoreU(encoder(x + i), Bytes(), codes + i);
    }
  }
  return i;
}

template <DType kFormat, class T>
void encode(const T* x, std::size_t count, float scale, std::uint8_t* codes, Store store) {
  with_encoder<kFormat, T>(scale, count, [&](const auto& encoder) HWY_ATTR {
    std::size_t i = 0;
    if (store == Store::kStreamed) {
      i = std::min(count, to_alignment(codes));
      encode_few(encoder, x, i, codes);
      i = encode_whole<true>(encoder, x, i, count, codes);
      hwy::FlushStream();
    } else {
      i = encode_whole<false>(encoder, x, i, count, codes);
    }
    encode_few(encoder, x + i, count - i, codes + i);
  });
}

template <DType kFormat, class T>
void encode_scaled(const T* x, std::size_t count, const float* scales, std::uint8_t* codes) {
  std::size_t i = 0;
  for (; i + kBytes <= count; i += kBytes) {
    hn::StoreU(encode_bytes<kFormat>([&](std::size_t at) {
                 return hn::Mul(load(x + i + at), hn::LoadU(Floats(), scales + i + at));
               }),
               Bytes(), codes + i);
  }
  kReferenceLoops.of<T>().format(kFormat).encode_scaled(x + i, count - i, scales + i, codes + i);
}

template <DType kFormat, class T>
void put(FormatLoops<T>& loops) {
  loops.encode = encode<kFormat, T>;
  loops.encode_scaled = encode_scaled<kFormat, T>;
}
void put_encode(Loops& loops) {
  put<DType::kE4M3>(loops.f32.e4m3);
  put<DType::kE5M2>(loops.f32.e5m2);
  put<DType::kE4M3>(loops.bf16.e4m3);
  put<DType::kE5M2>(loops.bf16.e5m2);
  put<DType::kE4M3>(loops.f16.e4m3);
  put<DType::kE5M2>(loops.f16.e5m2);
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

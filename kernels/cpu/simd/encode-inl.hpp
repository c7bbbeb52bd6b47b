// Codes of some elements at a time, once for each target. Included as vectors-inl.hpp.
#if defined(AMAXSCOPE_ENCODE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_ENCODE_INL_HPP
#undef AMAXSCOPE_ENCODE_INL_HPP
#else
#define AMAXSCOPE_ENCODE_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "kernels/cpu/simd/grid-inl.hpp"
#include "kernels/cpu/simd/table_encode-inl.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// The low bytes of four vectors of words (whose other bytes are 0), one vector after the other.
HWY_INLINE VByte pack(VWord a, VWord b, VWord c, VWord e) {
  const Words d;
  const auto mixed =
      hn::Or(hn::Or(a, hn::ShiftLeft<8>(b)), hn::Or(hn::ShiftLeft<16>(c), hn::ShiftLeft<24>(e)));
  // Within 16 bytes: four of a, four of b, ..; then those of a from all of them, and so on.
  alignas(16) static constexpr std::uint8_t kGather[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                           2, 6, 10, 14, 3, 7, 11, 15};
  const auto quads = hn::TableLookupBytes(hn::BitCast(Bytes(), mixed), hn::LoadDup128(Bytes(), kGather));
  if constexpr (kFloats == 4) {
    return quads;
  } else {
    constexpr std::size_t kBlocks = kFloats / 4;
    alignas(64) static constexpr auto kOrder = [] {
      std::array<std::uint32_t, kFloats> order{};
      for (std::size_t vector = 0; vector < 4; ++vector) {
        for (std::size_t block = 0; block < kBlocks; ++block) {
          order[vector * kBlocks + block] = static_cast<std::uint32_t>(block * 4 + vector);
        }
      }
      return order;
    }();
    return hn::BitCast(Bytes(),
                       hn::TableLookupLanes(hn::BitCast(d, quads), hn::SetTableIndices(d, kOrder.data())));
  }
}

/// Encodes kBytes elements: scaled(offset) is fp32 elements times their scales.
template <DType kFormat, class Scaled>
HWY_INLINE VByte encode_bytes(Scaled&& scaled) {
  return pack(codes_of<kFormat>(scaled(0)), codes_of<kFormat>(scaled(kFloats)),
              codes_of<kFormat>(scaled(2 * kFloats)), codes_of<kFormat>(scaled(3 * kFloats)));
}

/// Codes under one scale.
template <DType kFormat>
class Encoder {
 public:
  explicit HWY_INLINE Encoder(float scale) : scale_(scale) {}

  /// Of kBytes elements.
  template <class T>
  HWY_INLINE VByte operator()(const T* x) const {
    return encode_bytes<kFormat>([&](std::size_t at)
                                     HWY_ATTR { return hn::Mul(load(x + at), hn::Set(Floats(), scale_)); });
  }

 private:
  float scale_;
};

/// Fewer than kBytes elements.
template <class E, class T>
HWY_INLINE void encode_few(const E& encoder, const T* x, std::size_t count, std::uint8_t* codes) {
  if (count == 0) return;
  std::array<T, kBytes> padded{};
  std::copy_n(x, count, padded.begin());
  alignas(64) std::array<std::uint8_t, kBytes> made;
  hn::Store(encoder(padded.data()), Bytes(), made.data());
  std::memcpy(codes, made.data(), count);
}

/// action(encoder): the fastest for `count` elements of T.
template <DType kFormat, class T, class Action>
HWY_INLINE void with_encoder(float scale, [[maybe_unused]] std::size_t count, Action&& action) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_same_v<T, BF16>) {
    constexpr std::size_t kWorthTables = 4096;
    if (count >= kWorthTables && TableEncoder<kFormat>::takes(scale)) {
      return action(TableEncoder<kFormat>(scale));
    }
  }
#endif
  action(Encoder<kFormat>(scale));
}

/// Bytes up to the next aligned vector.
HWY_INLINE std::size_t to_alignment(const void* pointer) {
  return (kBytes - reinterpret_cast<std::uintptr_t>(pointer) % kBytes) % kBytes;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif

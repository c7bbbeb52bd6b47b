// Casts to FP8 codes and back, and the transpose of codes.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/encode.cpp"
#include <hwy/foreach_target.h>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/simd/extremes-inl.hpp"
#include "kernels/cpu/simd/grid-inl.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kBytes = HWY_MAX_BYTES;
using VByte = hn::Vec<Bytes>;

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

/// Fewer than kBytes elements.
template <DType kFormat, class T>
HWY_INLINE void encode_few(const T* x, std::size_t count, float scale, std::uint8_t* codes) {
  if (count == 0) return;
  std::array<T, kBytes> padded{};
  std::copy_n(x, count, padded.begin());
  alignas(64) std::array<std::uint8_t, kBytes> made;
  const auto s = hn::Set(Floats(), scale);
  hn::Store(encode_bytes<kFormat>([&](std::size_t at) { return hn::Mul(load(padded.data() + at), s); }),
            Bytes(), made.data());
  std::memcpy(codes, made.data(), count);
}

std::size_t to_alignment(const void* pointer) {
  return (kBytes - reinterpret_cast<std::uintptr_t>(pointer) % kBytes) % kBytes;
}

template <DType kFormat, class T>
void encode(const T* x, std::size_t count, float scale, std::uint8_t* codes, Store store) {
  const auto s = hn::Set(Floats(), scale);
  std::size_t i = 0;
  if (store == Store::kStreamed) {
    i = std::min(count, to_alignment(codes));
    encode_few<kFormat>(x, i, scale, codes);
    for (; i + kBytes <= count; i += kBytes) {
      prefetch<kBytes * sizeof(T)>(x + i);
      hn::Stream(encode_bytes<kFormat>([&](std::size_t at) { return hn::Mul(load(x + i + at), s); }), Bytes(),
                 codes + i);
    }
    hwy::FlushStream();
  }
  for (; i + kBytes <= count; i += kBytes) {
    prefetch<kBytes * sizeof(T)>(x + i);
    hn::StoreU(encode_bytes<kFormat>([&](std::size_t at) { return hn::Mul(load(x + i + at), s); }), Bytes(),
               codes + i);
  }
  encode_few<kFormat>(x + i, count - i, scale, codes + i);
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

constexpr std::size_t kMx = 32;

/// As fp32 bits, above those of Inf when there is a NaN.
template <class T>
HWY_INLINE std::uint32_t largest_of_mx(const T* x) {
  using Bits = typename PatternOf<T>::Bits;
  const hn::ScalableTag<Bits> d;
  constexpr std::size_t kLanesOfBits = HWY_MAX_BYTES / sizeof(Bits);
  const auto* bits = reinterpret_cast<const Bits*>(x);
  const auto mask = hn::Set(d, Magnitudes<T>::kMask);
  auto largest = hn::And(hn::LoadU(d, bits), mask);
  for (std::size_t i = kLanesOfBits; i < kMx; i += kLanesOfBits) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d, bits + i), mask));
  }
  return PatternOf<T>::as_fp32(largest_of(largest));
}

/// Some blocks at a time: their scales, and then their codes, which are made kBytes at a time.
template <DType kFormat, class T>
void encode_mx(const T* x, std::size_t blocks, std::uint8_t* codes, std::uint8_t* scales) {
  constexpr std::size_t kGroup = 16;
  constexpr float kReciprocal = 1.0F / fp8_max(kFormat);
  for (std::size_t group = 0; group < blocks; group += kGroup) {
    const std::size_t count = std::min(kGroup, blocks - group);
    const T* values = x + group * kMx;
    std::uint8_t* out = codes + group * kMx;
    std::array<float, kGroup> multipliers;
    for (std::size_t block = 0; block < count; ++block) {
      const T* of_block = values + block * kMx;
      prefetch<kMx * sizeof(T)>(of_block);
      std::uint32_t amax_bits = largest_of_mx(of_block);
      if (HWY_UNLIKELY(amax_bits > kInfinity)) amax_bits = kReferenceLoops.of<T>().amax(of_block, kMx);
      const std::uint8_t scale = encode_e8m0(std::bit_cast<float>(amax_bits) * kReciprocal);
      multipliers[block] = e8m0_encode_multiplier(scale);
      scales[group + block] = scale;
    }
    const auto encoded = [&](std::size_t first) HWY_ATTR {
      return encode_bytes<kFormat>([&](std::size_t at) HWY_ATTR {
        return hn::Mul(load(values + first + at), hn::Set(Floats(), multipliers[(first + at) / kMx]));
      });
    };
    std::size_t i = 0;
    for (; i + kBytes <= count * kMx; i += kBytes) hn::StoreU(encoded(i), Bytes(), out + i);
    if (i < count * kMx) {  // one block, half a vector
      encode_few<kFormat>(values + i, kMx, multipliers[i / kMx], out + i);
    }
  }
}

HWY_INLINE void put_values(VFloat value, float* x) { hn::StoreU(value, Floats(), x); }
HWY_INLINE void put_values(VFloat value, BF16* x) {
  const Words d;
  const auto bits = hn::BitCast(d, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFU))));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(d, kMagnitudeMask)), hn::Set(d, kInfinity));
  const auto result = hn::IfThenElse(is_nan, hn::Set(d, 0x7FFFU), rounded);
  const hn::RebindToSigned<Words> di;
  const hn::Rebind<std::uint16_t, Words> half;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, result)), half, reinterpret_cast<std::uint16_t*>(x));
}

/// Codes read as fp16: E5M2 is its upper half, and E4M3 has its mantissa one place to the left of it, with a
/// bias that is smaller by 8. All of this is exact, and so is moving 2^8 into the factor unless that
/// overflows.
template <DType kFormat>
struct AsHalf {
  static constexpr bool kE4M3 = kFormat == DType::kE4M3;

  /// Of the values: what they are multiplied by instead of scale_inv; not finite when there is no such
  /// factor.
  static HWY_INLINE float factor(float scale_inv) { return kE4M3 ? scale_inv * 256.0F : scale_inv; }
  /// kFloats values, E4M3 divided by 2^8; no code is the NaN of E4M3.
  static HWY_INLINE VFloat values(const std::uint8_t* codes) {
    const hn::Rebind<hwy::float16_t, Floats> d;
    if constexpr (kE4M3) {
      // Widened with its sign, so that a shift brings the sign to its place and one copy of it has to go.
      const hn::Rebind<std::int16_t, Floats> wide;
      const auto code =
          hn::LoadU(hn::Rebind<std::int8_t, Floats>(), reinterpret_cast<const std::int8_t*>(codes));
      const auto mask = hn::Set(wide, static_cast<std::int16_t>(0xBFFF));
      return hn::PromoteTo(Floats(),
                           hn::BitCast(d, hn::And(hn::ShiftLeft<7>(hn::PromoteTo(wide, code)), mask)));
    } else {
      const hn::Rebind<std::uint16_t, Floats> wide;
      const auto code = hn::LoadU(hn::Rebind<std::uint8_t, Floats>(), codes);
      return hn::PromoteTo(Floats(), hn::BitCast(d, hn::ShiftLeft<8>(hn::PromoteTo(wide, code))));
    }
  }
  /// Whether kBytes codes can be read so.
  static HWY_INLINE bool fit(const std::uint8_t* codes) {
    if constexpr (!kE4M3) return true;
    const auto number = hn::And(hn::LoadU(Bytes(), codes), hn::Set(Bytes(), std::uint8_t{0x7F}));
    return hn::AllFalse(Bytes(), hn::Eq(number, hn::Set(Bytes(), std::uint8_t{0x7F})));
  }
};

/// kBytes values times the scale: action(kFloats of them, index of the first).
template <DType kFormat, class Action>
HWY_INLINE void over_values(const std::uint8_t* codes, bool as_half, float scale_inv, Action&& action) {
  if (HWY_LIKELY(as_half && AsHalf<kFormat>::fit(codes))) {
    const auto s = hn::Set(Floats(), AsHalf<kFormat>::factor(scale_inv));
    for (std::size_t i = 0; i < kBytes; i += kFloats) {
      action(hn::Mul(AsHalf<kFormat>::values(codes + i), s), i);
    }
  } else {
    const auto s = hn::Set(Floats(), scale_inv);
    for (std::size_t i = 0; i < kBytes; i += kFloats) {
      action(hn::Mul(values_of<kFormat>(codes + i), s), i);
    }
  }
}

template <DType kFormat, class T>
void decode(const std::uint8_t* codes, std::size_t count, float scale_inv, T* x, Store store) {
  const float factor = AsHalf<kFormat>::factor(scale_inv);
  const bool as_half =
      factor <= std::numeric_limits<float>::max() && factor >= -std::numeric_limits<float>::max();
  std::size_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    const std::size_t head = to_alignment(x) / sizeof(float);
    if (store == Store::kStreamed && head < count && to_alignment(x) % sizeof(float) == 0) {
      kReferenceLoops.of<T>().format(kFormat).decode(codes, head, scale_inv, x, store);
      for (i = head; i + kBytes <= count; i += kBytes) {
        prefetch<kBytes>(codes + i);
        over_values<kFormat>(codes + i, as_half, scale_inv, [&](VFloat value, std::size_t at) HWY_ATTR {
          hn::Stream(value, Floats(), x + i + at);
        });
      }
      hwy::FlushStream();
    }
  }
  for (; i + kBytes <= count; i += kBytes) {
    prefetch<kBytes>(codes + i);
    over_values<kFormat>(codes + i, as_half, scale_inv,
                         [&](VFloat value, std::size_t at) HWY_ATTR { put_values(value, x + i + at); });
  }
  const auto s = hn::Set(Floats(), scale_inv);
  for (; i + kFloats <= count; i += kFloats) put_values(hn::Mul(values_of<kFormat>(codes + i), s), x + i);
  kReferenceLoops.of<T>().format(kFormat).decode(codes + i, count - i, scale_inv, x + i, store);
}

void copy(const std::uint8_t* in, std::size_t count, std::uint8_t* out, Store store) {
  const Bytes d;
  std::size_t i = 0;
  if (store == Store::kStreamed && to_alignment(out) == 0) {
    for (; i + kBytes <= count; i += kBytes) hn::Stream(hn::LoadU(d, in + i), d, out + i);
  }
  for (; i + kBytes <= count; i += kBytes) hn::StoreU(hn::LoadU(d, in + i), d, out + i);
  if (i < count) std::memcpy(out + i, in + i, count - i);
}

/// One round of a transpose of 16 x 16 bytes in each 16-byte block of the vectors.
HWY_INLINE void interleave(const VByte (&in)[16], VByte (&out)[16]) {
  for (std::size_t i = 0; i < 8; ++i) {
    out[2 * i] = hn::InterleaveLower(Bytes(), in[i], in[i + 8]);
    out[2 * i + 1] = hn::InterleaveUpper(Bytes(), in[i], in[i + 8]);
  }
}

/// Block b of the result is the 16 bytes at in + b * distance.
HWY_INLINE VByte load_blocks(const std::uint8_t* in, std::size_t distance) {
  const Bytes d;
  auto result = hn::LoadDup128(d, in);
  if constexpr (kBytes >= 32) {
    result = hn::ConcatUpperLower(d, hn::LoadDup128(d, in + (kBytes / 32) * distance), result);
  }
  if constexpr (kBytes == 64) {
    const auto odd =
        hn::ConcatUpperLower(d, hn::LoadDup128(d, in + 3 * distance), hn::LoadDup128(d, in + distance));
    using Wide = hn::Repartition<std::uint64_t, Bytes>;
    alignas(64) static constexpr std::uint64_t kOdd[8] = {0, 0, ~0ULL, ~0ULL, 0, 0, ~0ULL, ~0ULL};
    const auto from_odd = hn::MaskFromVec(hn::LoadU(Wide(), kOdd));
    result = hn::BitCast(d, hn::IfThenElse(from_odd, hn::BitCast(Wide(), odd), hn::BitCast(Wide(), result)));
  }
  return result;
}

void transpose(const std::uint8_t* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
               std::uint8_t* out, std::size_t out_stride, Store store) {
  const bool streamed = store == Store::kStreamed && to_alignment(out) == 0 && out_stride % kBytes == 0;
  const std::size_t whole_rows = rows / kBytes * kBytes;
  const std::size_t whole_cols = cols / 16 * 16;
  for (std::size_t col = 0; col < whole_cols; col += 16) {
    for (std::size_t row = 0; row < whole_rows; row += kBytes) {
      VByte a[16];
      VByte b[16];
      for (std::size_t i = 0; i < 16; ++i) {
        a[i] = load_blocks(in + (row + i) * in_stride + col, 16 * in_stride);
      }
      interleave(a, b);
      interleave(b, a);
      interleave(a, b);
      interleave(b, a);
      std::uint8_t* to = out + col * out_stride + row;
      for (std::size_t i = 0; i < 16; ++i) {
        if (streamed) {
          hn::Stream(a[i], Bytes(), to + i * out_stride);
        } else {
          hn::StoreU(a[i], Bytes(), to + i * out_stride);
        }
      }
    }
  }
  kReferenceLoops.transpose(in + whole_rows * in_stride, in_stride, rows - whole_rows, whole_cols,
                            out + whole_rows, out_stride, store);
  kReferenceLoops.transpose(in + whole_cols, in_stride, rows, cols - whole_cols,
                            out + whole_cols * out_stride, out_stride, store);
}

template <DType kFormat, class T>
void put(FormatLoops<T>& loops) {
  loops.encode = encode<kFormat, T>;
  loops.encode_scaled = encode_scaled<kFormat, T>;
  loops.encode_mx = encode_mx<kFormat, T>;
  if constexpr (!std::is_same_v<T, F16>) loops.decode = decode<kFormat, T>;
}
void put_encode(Loops& loops) {
  put<DType::kE4M3>(loops.f32.e4m3);
  put<DType::kE5M2>(loops.f32.e5m2);
  put<DType::kE4M3>(loops.bf16.e4m3);
  put<DType::kE5M2>(loops.bf16.e5m2);
  put<DType::kE4M3>(loops.f16.e4m3);
  put<DType::kE5M2>(loops.f16.e5m2);
  loops.transpose = transpose;
  loops.copy = copy;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

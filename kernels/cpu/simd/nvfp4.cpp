// NVFP4: what a tile of 16 x 16 elements takes.
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/nvfp4.cpp"
#include <hwy/foreach_target.h>

#include "kernels/codec/fp4.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/simd/grid-inl.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Four vectors of words, transposed in each of their blocks of four.
HWY_INLINE void transpose_four(VWord& a, VWord& b, VWord& c, VWord& e) {
  const Words d;
  const auto ac_low = hn::InterleaveLower(d, a, c);
  const auto ac_high = hn::InterleaveUpper(d, a, c);
  const auto be_low = hn::InterleaveLower(d, b, e);
  const auto be_high = hn::InterleaveUpper(d, b, e);
  a = hn::InterleaveLower(d, ac_low, be_low);
  b = hn::InterleaveUpper(d, ac_low, be_low);
  c = hn::InterleaveLower(d, ac_high, be_high);
  e = hn::InterleaveUpper(d, ac_high, be_high);
}

/// Four rows at a time; the blocks of four columns that this gives are moved to their rows.
void transpose_tile(const float* in, float* out) {
  const Words d;
  const auto* from = reinterpret_cast<const std::uint32_t*>(in);
  auto* to = reinterpret_cast<std::uint32_t*>(out);
  alignas(64) std::array<std::uint32_t, 4 * kFp4Group> four;
  for (std::size_t row = 0; row < kFp4Group; row += 4) {
    for (std::size_t col = 0; col < kFp4Group; col += kFloats) {
      const std::uint32_t* first = from + row * kFp4Group + col;
      auto a = hn::LoadU(d, first);
      auto b = hn::LoadU(d, first + kFp4Group);
      auto c = hn::LoadU(d, first + 2 * kFp4Group);
      auto e = hn::LoadU(d, first + 3 * kFp4Group);
      transpose_four(a, b, c, e);
      // Block k of a is column 4 k of these rows, of b column 4 k + 1, and so on.
      hn::Store(a, d, four.data());
      hn::Store(b, d, four.data() + kFp4Group);
      hn::Store(c, d, four.data() + 2 * kFp4Group);
      hn::Store(e, d, four.data() + 3 * kFp4Group);
      const hn::CappedTag<std::uint32_t, 4> block;
      for (std::size_t i = 0; i < kFloats; ++i) {
        hn::StoreU(hn::LoadU(block, four.data() + i % 4 * kFp4Group + i / 4 * 4), block,
                   to + (col + i) * kFp4Group + row);
      }
    }
  }
}

/// The loop of hadamard::stage over rows instead of elements.
template <std::size_t kHalf>
HWY_INLINE void stage(VFloat (&rows)[kHadamardSize]) {
  for (std::size_t pair = 0; pair < kHadamardSize / 2; ++pair) {
    const std::size_t i = pair / kHalf * (2 * kHalf) + pair % kHalf;
    const auto a = rows[i];
    const auto b = rows[i + kHalf];
    rows[i] = hn::Add(a, b);
    rows[i + kHalf] = hn::Sub(a, b);
  }
}

void rotate_columns(float* tile, bool through_bf16) {
  const Floats d;
  for (std::size_t col = 0; col < kFp4Group; col += kFloats) {
    VFloat rows[kHadamardSize];
    for (std::size_t row = 0; row < kHadamardSize; ++row) {
      rows[row] = hn::Mul(hn::LoadU(d, tile + row * kFp4Group + col), hn::Set(d, hadamard_sign(row)));
    }
    stage<1>(rows);
    stage<2>(rows);
    stage<4>(rows);
    stage<8>(rows);
    for (std::size_t row = 0; row < kHadamardSize; ++row) {
      auto value = hn::Mul(rows[row], hn::Set(d, 0.25F));
      if (through_bf16) value = hn::BitCast(d, hn::ShiftLeft<16>(bf16_of(value)));
      hn::StoreU(value, d, tile + row * kFp4Group + col);
    }
  }
}

void column_amaxes(const float* tile, std::uint32_t* keys) {
  const Words d;
  for (std::size_t col = 0; col < kFp4Group; col += kFloats) {
    auto key = hn::Zero(d);
    for (std::size_t row = 0; row < kFp4Group; ++row) {
      const auto value = magnitude(load(tile + row * kFp4Group + col));
      key = hn::Max(key, hn::IfThenZeroElse(hn::Gt(value, hn::Set(d, kInfinity)), value));
    }
    hn::StoreU(key, d, keys + col);
  }
}

void make_scales(const float* values, const Nvfp4TensorLevel& level, std::uint8_t* scales,
                 float* multipliers) {
  const Floats d;
  const hn::Rebind<std::uint8_t, Words> bytes;
  for (std::size_t i = 0; i < kFp4Group; i += kFloats) {
    const auto codes = codes_of<DType::kE4M3>(hn::LoadU(d, values + i));
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(hn::RebindToSigned<Words>(), codes)), bytes, scales + i);
    const auto decoded = hn::Mul(values_of<DType::kE4M3>(scales + i), hn::Set(d, level.decode));
    const auto multiplier = hn::Div(hn::Set(d, 1.0F), decoded);
    const auto largest = hn::Set(d, kFloatMax);
    hn::StoreU(hn::IfThenElse(hn::Lt(multiplier, largest), multiplier, largest), d, multipliers + i);
  }
}

/// The halves of 64-bit products of words.
struct Product {
  VWord high, low;
};
HWY_INLINE Product product(VWord x, std::uint32_t factor) {
  const Words d;
  const auto f = hn::Set(d, factor);
  const hn::Repartition<std::uint64_t, Words> wide;
  const auto even = hn::MulEven(x, f);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), f);
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
}

/// philox4x32_10 and rounding_draw for kFloats blocks at a time, one in each word.
void draw(const Fp4Draws& draws, std::uint8_t* random) {
  const Words d;
  alignas(64) std::array<std::uint32_t, kFp4Group> low;
  alignas(64) std::array<std::uint32_t, kFp4Group> high;
  for (std::size_t i = 0; i < kFp4Group; ++i) {
    const std::uint64_t block = draws.first + i * draws.step;
    low[i] = static_cast<std::uint32_t>(block);
    high[i] = static_cast<std::uint32_t>(block >> 32);
  }
  for (std::size_t i = 0; i < kFp4Group; i += kFloats) {
    auto a = hn::Load(d, low.data() + i);
    auto b = hn::Load(d, high.data() + i);
    auto c = hn::Set(d, static_cast<std::uint32_t>(draws.call));
    auto e = hn::Set(d, static_cast<std::uint32_t>(draws.call >> 32) * 2U + draws.columnwise);
    auto first_key = static_cast<std::uint32_t>(draws.key);
    auto second_key = static_cast<std::uint32_t>(draws.key >> 32);
    for (int round = 0; round < 10; ++round) {
      const Product first = product(a, 0xD2511F53U);
      const Product second = product(c, 0xCD9E8D57U);
      a = hn::Xor(hn::Xor(second.high, b), hn::Set(d, first_key));
      b = second.low;
      c = hn::Xor(hn::Xor(first.high, e), hn::Set(d, second_key));
      e = first.low;
      first_key += 0x9E3779B9U;
      second_key += 0xBB67AE85U;
    }
    alignas(64) std::array<std::uint32_t, 4 * kFloats> words;
    hn::StoreInterleaved4(a, b, c, e, d, words.data());
    // Element k takes byte k % 4, from the least significant, of word k / 4: as they lie in memory.
    std::memcpy(random + i * kFp4Group, words.data(), sizeof(words));
  }
}

/// A magnitude as bits, at most 6, to nearest, ties to even. Adding a power of two whose spacing is the
/// distance of the codes around it rounds; its low bits then count steps, and from 2 on every binade starts
/// two codes higher than it would with steps of its own.
HWY_INLINE VWord nearest_code(VWord clamped) {
  const Words d;
  const auto one = hn::Set(d, 0x3F800000U);
  const auto power = hn::Max(hn::And(clamped, hn::Set(d, kInfinity)), one);
  const auto aligner = hn::Add(power, hn::Set(d, 22U << 23));
  const auto sum = hn::BitCast(d, hn::Add(hn::BitCast(Floats(), clamped), hn::BitCast(Floats(), aligner)));
  return hn::Add(hn::Sub(sum, aligner), hn::ShiftRight<22>(hn::Sub(power, one)));
}

/// The value of that code.
HWY_INLINE VFloat nearest_value(VWord clamped) {
  const Words d;
  const auto power = hn::Max(hn::And(clamped, hn::Set(d, kInfinity)), hn::Set(d, 0x3F800000U));
  const auto aligner = hn::BitCast(Floats(), hn::Add(power, hn::Set(d, 22U << 23)));
  return hn::Sub(hn::Add(hn::BitCast(Floats(), clamped), aligner), aligner);
}

/// A NaN gives a NaN whatever its code stands for.
void column_errors(const float* tile, const Fp4Candidate& candidate, float* errors) {
  const Words d;
  const Floats df;
  constexpr std::uint32_t kLargest = std::bit_cast<std::uint32_t>(kFp4Max);
  for (std::size_t col = 0; col < kFp4Group; col += kFloats) {
    const auto multiplier = hn::LoadU(df, candidate.multipliers.data() + col);
    const auto scale = hn::LoadU(df, candidate.scales.data() + col);
    auto sum = hn::Zero(df);
    for (std::size_t row = 0; row < kFp4Group; ++row) {
      const auto value = load(tile + row * kFp4Group + col);
      const auto scaled = hn::Mul(value, multiplier);
      const auto code = hn::CopySign(nearest_value(hn::Min(magnitude(scaled), hn::Set(d, kLargest))), scaled);
      const auto decoded = hn::Div(hn::Mul(hn::Mul(code, scale), hn::Set(df, candidate.amax)),
                                   hn::Set(df, candidate.denominator));
      const auto difference = hn::Sub(decoded, value);
      sum = hn::Add(sum, candidate.squared ? hn::Mul(difference, difference) : hn::Abs(difference));
    }
    hn::StoreU(sum, df, errors + col);
  }
}

/// encode_e2m1_stochastic of such a magnitude, with a random number below 256 in each word.
HWY_INLINE VWord random_code(VWord clamped, VWord random) {
  const Words d;
  const Floats df;
  const auto one = hn::Set(d, 0x3F800000U);
  const auto power = hn::Max(hn::And(clamped, hn::Set(d, kInfinity)), one);
  const auto step = hn::BitCast(df, hn::Sub(power, hn::Set(d, 1U << 23)));
  const auto part =
      hn::Mul(hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<Words>(), random)), hn::Set(df, 0x1p-8F));
  const auto moved = hn::BitCast(d, hn::Add(hn::BitCast(df, clamped), hn::Mul(part, step)));
  const auto below_one =
      hn::IfThenElseZero(hn::Gt(moved, hn::Set(d, 0x3EFFFFFFU)), hn::Set(d, 1U));  // from 0.5 on
  const auto from_one = hn::Sub(hn::ShiftRight<22>(moved), hn::Set(d, (0x3F800000U >> 22) - 2U));
  return hn::IfThenElse(hn::Gt(one, moved), below_one, from_one);
}

template <bool kRandom>
HWY_INLINE void encode_rows(const float* rows, const float* multipliers, const std::uint8_t* random,
                            std::uint8_t* codes) {
  const Words d;
  const hn::Rebind<std::uint8_t, Words> bytes;
  constexpr std::uint32_t kLargest = std::bit_cast<std::uint32_t>(kFp4Max);
  for (std::size_t i = 0; i < kFp4Tile; i += kFloats) {
    const auto scaled = hn::Mul(load(rows + i), hn::Set(Floats(), multipliers[i / kFp4Group]));
    const auto value = magnitude(scaled);
    const auto clamped = hn::Min(value, hn::Set(d, kLargest));
    VWord number;
    if constexpr (kRandom) {
      number = random_code(clamped, hn::PromoteTo(d, hn::LoadU(bytes, random + i)));
    } else {
      number = nearest_code(clamped);
    }
    const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(d, scaled)), hn::Set(d, 8U));
    const auto code =
        hn::IfThenElse(hn::Gt(value, hn::Set(d, kInfinity)), hn::Set(d, 7U), hn::Or(number, sign));
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(hn::RebindToSigned<Words>(), code)), bytes, codes + i);
  }
}

void encode_tile(const float* rows, const float* multipliers, const std::uint8_t* random,
                 std::uint8_t* codes) {
  if (random == nullptr) {
    encode_rows<false>(rows, multipliers, random, codes);
  } else {
    encode_rows<true>(rows, multipliers, random, codes);
  }
}

void put_nvfp4(Loops& loops) {
  static constexpr Nvfp4Loops kNvfp4{.transpose = transpose_tile,
                                     .rotate = rotate_columns,
                                     .column_amaxes = column_amaxes,
                                     .scales = make_scales,
                                     .column_errors = column_errors,
                                     .draw = draw,
                                     .encode = encode_tile};
  loops.nvfp4 = &kNvfp4;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

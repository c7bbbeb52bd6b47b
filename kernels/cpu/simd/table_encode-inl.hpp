// Casts of bf16 by table, for processors that look up 128 bytes in one operation (AVX512_VBMI); a
// hand-written path beside Highway, which has no such operation. Included as vectors-inl.hpp.
#if defined(AMAXSCOPE_TABLE_ENCODE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_TABLE_ENCODE_INL_HPP
#undef AMAXSCOPE_TABLE_ENCODE_INL_HPP
#else
#define AMAXSCOPE_TABLE_ENCODE_INL_HPP
#endif

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/codec/fp8.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// The code of a bf16 under a scale. Where codes are normal, all binades of x have the same codes but for a
/// constant: the product is rounded to fp32 alike in each. So one table of the 128 mantissas does for all of
/// them, and the exponent is added. Magnitudes below the smallest normal code compare with the first
/// magnitude of each subnormal code; they are rare enough to be looked for in a branch.
template <DType kFormat>
class TableEncoder {
 public:
  using Traits = Fp8Traits<kFormat>;

  /// Scales that keep every product of a normal code and every bound among normal numbers.
  static bool takes(float scale) { return scale >= 0x1p-60F && scale <= 0x1p60F; }

  explicit TableEncoder(float scale) : scale_(scale) {
    // A binade whose products lie from 2 to 8, among normal codes.
    const std::uint32_t exponent = 255U - (std::bit_cast<std::uint32_t>(scale) >> 23);
    for (std::uint32_t mantissa = 0; mantissa < table_.size(); ++mantissa) {
      const auto pattern = static_cast<std::uint16_t>((exponent << 7) | mantissa);
      table_[mantissa] = static_cast<std::uint8_t>(code(pattern) - (exponent << kMantissa));
    }
    for (std::uint32_t i = 0; i < kFirstNormal; ++i) subnormals_[i] = first_with(i + 1);
    largest_ = first_with(code(kInfinityPattern));
    const float least_normal = value(kFirstNormal);
    normals_ = first_where(least_normal / scale, [&](std::uint16_t pattern) {
      return to_float(BF16{pattern}) * scale_ >= least_normal;
    });
  }

  /// Of kBytes elements.
  HWY_INLINE VByte operator()(const BF16* x) const {
    const __m512i a = _mm512_loadu_si512(x);
    const __m512i b = _mm512_loadu_si512(x + 32);
    const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
    const __m512i a_value = _mm512_and_si512(a, magnitude);
    const __m512i b_value = _mm512_and_si512(b, magnitude);
    const __m512i largest = _mm512_set1_epi16(static_cast<short>(largest_));
    const __m512i a_clamped = _mm512_min_epu16(a_value, largest);
    const __m512i b_clamped = _mm512_min_epu16(b_value, largest);

    const __m512i low = low_bytes(a_clamped, b_clamped);  // the mantissa; a lookup ignores its upper bit
    const __m512i high =
        low_bytes(_mm512_srli_epi16(a_clamped, kShift), _mm512_srli_epi16(b_clamped, kShift));
    const __m512i exponent =
        _mm512_and_si512(high, _mm512_set1_epi8(static_cast<char>(0x100 - kFirstNormal)));
    const __m512i of_mantissa = _mm512_permutex2var_epi8(_mm512_load_si512(table_.data()), low,
                                                         _mm512_load_si512(table_.data() + kBytes));
    const __m512i normals = _mm512_set1_epi16(static_cast<short>(normals_));
    const __mmask64 is_normal = _mm512_kunpackd(_mm512_cmpge_epu16_mask(b_clamped, normals),
                                                _mm512_cmpge_epu16_mask(a_clamped, normals));
    __m512i number = _mm512_maskz_add_epi8(is_normal, exponent, of_mantissa);

    const __m512i first = _mm512_set1_epi16(static_cast<short>(subnormals_[0]));
    const __m512i span = _mm512_set1_epi16(static_cast<short>(normals_ - subnormals_[0]));
    const __mmask32 subnormal = _mm512_cmplt_epu16_mask(_mm512_sub_epi16(a_clamped, first), span) |
                                _mm512_cmplt_epu16_mask(_mm512_sub_epi16(b_clamped, first), span);
    const __m512i infinity = _mm512_set1_epi16(static_cast<short>(kInfinityPattern));
    const __mmask32 nan = _mm512_cmpgt_epu16_mask(_mm512_max_epu16(a_value, b_value), infinity);
    if (HWY_UNLIKELY(subnormal != 0)) number = with_subnormals(number, is_normal, a_clamped, b_clamped);

    // 0xCA: the bits of the second where the first has ones, else of the third.
    __m512i result =
        _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(0x80)), high_bytes(a, b), number, 0xCA);
    if (HWY_UNLIKELY(nan != 0)) {
      const __mmask64 is_nan = _mm512_kunpackd(_mm512_cmpgt_epu16_mask(b_value, infinity),
                                               _mm512_cmpgt_epu16_mask(a_value, infinity));
      result = _mm512_mask_mov_epi8(result, is_nan, _mm512_set1_epi8(static_cast<char>(kFp8NaN)));
    }
    return VByte{result};
  }

 private:
  static constexpr int kMantissa = Traits::kMantissaBits;
  static constexpr unsigned kShift = 7 - kMantissa;  // from a bf16's exponent to a code's
  static constexpr std::uint32_t kFirstNormal = 1U << kMantissa;
  static constexpr std::uint16_t kInfinityPattern = 0x7F80;

  static constexpr std::array<std::uint8_t, kBytes> every_other(std::uint8_t first) {
    std::array<std::uint8_t, kBytes> places{};
    for (std::size_t i = 0; i < kBytes; ++i) places[i] = static_cast<std::uint8_t>(2 * i + first);
    return places;
  }
  static HWY_INLINE __m512i low_bytes(__m512i a, __m512i b) {
    alignas(64) static constexpr auto kLow = every_other(0);
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(kLow.data()), b);
  }
  static HWY_INLINE __m512i high_bytes(__m512i a, __m512i b) {
    alignas(64) static constexpr auto kHigh = every_other(1);
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(kHigh.data()), b);
  }

  HWY_NOINLINE __m512i with_subnormals(__m512i number, __mmask64 is_normal, __m512i a, __m512i b) const {
    __m512i a_count = _mm512_setzero_si512();
    __m512i b_count = a_count;
    const __m512i one = _mm512_set1_epi16(1);
    for (const std::uint16_t bound : subnormals_) {
      const __m512i from = _mm512_set1_epi16(static_cast<short>(bound));
      a_count = _mm512_mask_add_epi16(a_count, _mm512_cmpge_epu16_mask(a, from), a_count, one);
      b_count = _mm512_mask_add_epi16(b_count, _mm512_cmpge_epu16_mask(b, from), b_count, one);
    }
    return _mm512_mask_mov_epi8(low_bytes(a_count, b_count), is_normal, number);
  }

  std::uint8_t code(std::uint16_t pattern) const {
    return encode_fp8<kFormat>(to_float(BF16{pattern}) * scale_);
  }
  static float value(std::uint32_t number) { return decode_fp8<kFormat>(static_cast<std::uint8_t>(number)); }
  /// The first magnitude whose code is at least this one.
  std::uint16_t first_with(std::uint32_t number) const {
    const float halfway = (value(number - 1) + value(number)) * 0.5F;
    return first_where(halfway / scale_, [&](std::uint16_t pattern) { return code(pattern) >= number; });
  }
  /// The first magnitude for which something holds that holds from about `guess` on.
  template <class Holds>
  static std::uint16_t first_where(float guess, Holds&& holds) {
    auto pattern = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(guess) >> 16);
    while (pattern > 0 && holds(static_cast<std::uint16_t>(pattern - 1))) --pattern;
    while (!holds(pattern)) ++pattern;
    return pattern;
  }

  alignas(64) std::array<std::uint8_t, 128> table_;
  std::array<std::uint16_t, kFirstNormal> subnormals_;  ///< first magnitudes of codes 1 to kFirstNormal
  std::uint16_t normals_;                               ///< the first magnitude on the normal grid
  std::uint16_t largest_;                               ///< the first magnitude with the largest code
  float scale_;
};

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif

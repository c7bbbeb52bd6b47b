// Every instruction set that this machine has gives the bits of the reference: for every length, for the
// special values, for all bf16 inputs and all codes.
#include "kernels/cpu/loops.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/codec/fp8.hpp"
#include "tests/kernels/loops_support.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

using cpu::ElementLoops;
using cpu::FormatLoops;
using cpu::Loops;
using cpu::Store;

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i <= 140; ++i) result.push_back(i);
  for (const std::size_t i : {255U, 256U, 257U, 511U, 777U, 1023U, 2031U, 2047U, 2048U}) result.push_back(i);
  return result;
}

template <class A, class B>
bool same_bytes(const std::vector<A>& a, const std::vector<B>& b) {
  static_assert(sizeof(A) == sizeof(B));
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(A)) == 0);
}

#define EXPECT_FIELD(field) EXPECT_EQ(bits(a.field), bits(b.field)) << #field
template <class T>
auto bits(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return bits_of(x);
  } else {
    return x;
  }
}

void expect_same(const TensorMoments& a, const TensorMoments& b) {
  EXPECT_FIELD(numel);
  EXPECT_FIELD(nan);
  EXPECT_FIELD(inf);
  EXPECT_FIELD(nonzero);
  EXPECT_FIELD(min);
  EXPECT_FIELD(max);
  EXPECT_FIELD(min_finite);
  EXPECT_FIELD(max_finite);
  EXPECT_FIELD(amax_finite);
  EXPECT_FIELD(amin_nonzero);
  EXPECT_FIELD(sum);
  EXPECT_FIELD(l1);
  EXPECT_FIELD(sum_squares);
  EXPECT_FIELD(mean);
  EXPECT_FIELD(m2);
  EXPECT_FIELD(m3);
  EXPECT_FIELD(m4);
}

void expect_same(const QuantizationError& a, const QuantizationError& b) {
  EXPECT_FIELD(numel);
  EXPECT_FIELD(nan);
  EXPECT_FIELD(compared);
  EXPECT_FIELD(underflows);
  EXPECT_FIELD(overflows);
  EXPECT_FIELD(saturated);
  EXPECT_FIELD(error_squares);
  EXPECT_FIELD(signal_squares);
  EXPECT_FIELD(quantized_squares);
  EXPECT_FIELD(product);
  EXPECT_FIELD(saturated_squares);
  EXPECT_FIELD(flushed_squares);
  EXPECT_FIELD(max_error);
}
#undef EXPECT_FIELD

template <class T>
class LoopsTest : public testing::Test {};
using Types = testing::Types<float, BF16, F16>;
TYPED_TEST_SUITE(LoopsTest, Types);

TEST(Loops, TheReferenceComesFirstAndTheLastIsUsed) {
  ASSERT_FALSE(cpu::all_loops().empty());
  EXPECT_EQ(cpu::all_loops().front().name, "reference");
  EXPECT_EQ(cpu::loops().name, cpu::all_loops().back().name);
}

#ifdef __x86_64__
TEST(Loops, WhatThisProcessorHasIsThere) {
  const auto has = [](std::string_view name) {
    return std::ranges::any_of(cpu::all_loops(), [&](const Loops& loops) { return loops.name == name; });
  };
  EXPECT_EQ(has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(has("avx512"),
            __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0);
  // Highway asks for what Ice Lake and Zen 4 brought with it.
  EXPECT_EQ(has("avx512_vbmi"), has("avx512") && __builtin_cpu_supports("avx512vbmi") != 0 &&
                                    __builtin_cpu_supports("avx512vbmi2") != 0 &&
                                    __builtin_cpu_supports("avx512bitalg") != 0);
}
#endif

TYPED_TEST(LoopsTest, MaximaAreThoseOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const bool specials : {false, true}) {
      for (const std::size_t length : lengths()) {
        SCOPED_TRACE(length);
        const auto x = mixture<TypeParam>(length + 1, static_cast<unsigned>(length), specials);
        const TypeParam* unaligned = x.data() + 1;
        const auto& mine = loops.of<TypeParam>();
        const auto& theirs = reference.of<TypeParam>();
        ASSERT_EQ(mine.amax(unaligned, length), theirs.amax(unaligned, length));
        ASSERT_EQ(mine.largest(unaligned, length), theirs.largest(unaligned, length));
        std::vector<std::uint32_t> a(length, 0x3F800000U);
        std::vector<std::uint32_t> b = a;
        mine.column_amax(unaligned, length, a.data());
        theirs.column_amax(unaligned, length, b.data());
        ASSERT_EQ(a, b);
      }
    }
  });
}

TYPED_TEST(LoopsTest, AmaxFindsTheOneLargestWhereverItIs) {
  for_each_target([](const Loops& loops, const Loops&) {
    std::vector<TypeParam> x(40'000, narrowed<TypeParam>(0.5F));
    x[4321] = x[30'000] = narrowed<TypeParam>(kNaN);
    for (std::size_t place = 0; place < x.size(); place += 293) {
      const TypeParam before = x[place];
      x[place] = narrowed<TypeParam>(-3.0F);
      ASSERT_EQ(loops.of<TypeParam>().amax(x.data(), x.size()), bits_of(3.0F)) << place;
      x[place] = before;
    }
  });
}

TYPED_TEST(LoopsTest, MomentsHaveTheBitsOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const bool specials : {false, true}) {
      for (const std::size_t length : lengths()) {
        if (length == 0) continue;
        SCOPED_TRACE(length);
        const auto x = mixture<TypeParam>(length, static_cast<unsigned>(length) + 7, specials);
        for (const MomentOrder order : {MomentOrder::kSecond, MomentOrder::kFourth}) {
          expect_same(loops.of<TypeParam>().moments(x.data(), length, order),
                      reference.of<TypeParam>().moments(x.data(), length, order));
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

template <class T>
void expect_same_codes(const FormatLoops<T>& mine, const FormatLoops<T>& theirs, std::size_t length,
                       float scale) {
  const auto x = mixture<T>(length + 1, static_cast<unsigned>(length) + 13, true);
  for (const Store store : {Store::kCached, Store::kStreamed}) {
    for (const std::size_t offset : {0U, 3U}) {  // codes that start on and off a cache line
      std::vector<std::uint8_t> a(length + offset + 1, 0xAA);
      std::vector<std::uint8_t> b = a;
      mine.encode(x.data() + 1, length, scale, a.data() + offset, store);
      theirs.encode(x.data() + 1, length, scale, b.data() + offset, store);
      ASSERT_TRUE(same_bytes(a, b)) << length;
    }
  }
  std::vector<float> scales(length);
  for (std::size_t i = 0; i < length; ++i) scales[i] = std::ldexp(scale, static_cast<int>(i % 5) - 2);
  std::vector<std::uint8_t> a(length + 1, 0xAA);
  std::vector<std::uint8_t> b = a;
  mine.encode_scaled(x.data(), length, scales.data(), a.data());
  theirs.encode_scaled(x.data(), length, scales.data(), b.data());
  ASSERT_TRUE(same_bytes(a, b)) << length;
}

TYPED_TEST(LoopsTest, CodesAreThoseOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const std::size_t length : lengths()) {
      for (const float scale : {1.0F, 1.7F, 0x1p127F, 0x1p-127F}) {
        expect_same_codes(loops.of<TypeParam>().e4m3, reference.of<TypeParam>().e4m3, length, scale);
        expect_same_codes(loops.of<TypeParam>().e5m2, reference.of<TypeParam>().e5m2, length, scale);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

/// All bf16 patterns; as fp32 also with lower halves next to ties.
TYPED_TEST(LoopsTest, CodesOfAllUpperHalves) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const std::uint32_t lower : {0U, 1U, 0x8000U, 0xFFFFU}) {
      const auto x = all_upper_halves<TypeParam>(lower);
      for (const DType format : {DType::kE4M3, DType::kE5M2}) {
        // Among them scales that round most products, and those from which on there are no tables for bf16.
        for (const float scale : {1.0F, 3.0F, 0.0078125F, 37.5F, 1.0F / 3, 1.9999999F, 0x1p-60F, 0x1.fp-61F,
                                  0x1p60F, 0x1.1p60F, 0x1p-126F, 0x1p-130F, -2.0F, 0.0F, kInf, kNaN}) {
          std::vector<std::uint8_t> a(x.size());
          std::vector<std::uint8_t> b(x.size());
          loops.of<TypeParam>().format(format).encode(x.data(), x.size(), scale, a.data(), Store::kCached);
          reference.of<TypeParam>().format(format).encode(x.data(), x.size(), scale, b.data(),
                                                          Store::kCached);
          ASSERT_TRUE(same_bytes(a, b));
        }
      }
    }
  });
}

/// Enough elements for a way that pays only for many of them; whole vectors and a rest, on and off a cache
/// line.
TYPED_TEST(LoopsTest, CodesOfManyElements) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const std::size_t length : {4095U, 4096U, 4133U, 20'000U}) {
      for (const float scale : {0.7F, 37.5F, 1e-3F}) {
        expect_same_codes(loops.of<TypeParam>().e4m3, reference.of<TypeParam>().e4m3, length, scale);
        expect_same_codes(loops.of<TypeParam>().e5m2, reference.of<TypeParam>().e5m2, length, scale);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TYPED_TEST(LoopsTest, CodesAndTheirTransposeAreThoseOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const Store store : {Store::kCached, Store::kStreamed}) {
      for (const std::size_t rows : {0U, 1U, 63U, 64U, 200U, 256U, 300U}) {
        for (const std::size_t cols : {0U, 1U, 15U, 64U, 129U, 512U, 700U}) {
          const auto x = mixture<TypeParam>(rows * cols + 1, static_cast<unsigned>(rows + cols), true);
          const std::size_t stride = (rows + 63) / 64 * 64 + (cols % 2 == 0 ? 0 : 3);
          const auto size = static_cast<std::int64_t>(rows * cols + cols * stride + 128);
          for (const DType format : {DType::kE4M3, DType::kE5M2}) {
            Tensor a(DType::kU8, {size});
            Tensor b(DType::kU8, {size});
            const auto encode = [&](const Loops& of, Tensor& out) {
              std::uint8_t* transposed = out.values<std::uint8_t>().data();
              of.of<TypeParam>().format(format).encode_transpose(x.data() + 1, rows, cols, 12.3F,
                                                                 transposed + cols * stride + 64, transposed,
                                                                 stride, store);
            };
            encode(loops, a);
            encode(reference, b);
            ASSERT_TRUE(std::ranges::equal(a.values<std::uint8_t>(), b.values<std::uint8_t>()))
                << rows << 'x' << cols;
          }
        }
      }
    }
  });
}

TYPED_TEST(LoopsTest, MxBlocksAreThoseOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const bool specials : {false, true}) {
      for (const std::size_t blocks : {1U, 2U, 3U, 16U, 17U, 200U, 3000U}) {
        auto x = mixture<TypeParam>(blocks * 32, static_cast<unsigned>(blocks), specials);
        std::fill_n(x.begin(), 32, TypeParam{});  // a block of zeros
        for (std::size_t i = 32 * 64; i < x.size();
             ++i) {  // blocks with one magnitude, and with all of bf16's
          const auto sign = static_cast<std::uint32_t>(i % 2) << 31;
          const auto magnitude = static_cast<std::uint32_t>(i < 32 * 80 ? (i / 32) * 512 + i % 3 : i * 7)
                                 << 16;
          x[i] = narrowed<TypeParam>(from_bits((magnitude & 0x7F7FFFFFU) | sign));
        }
        for (const DType format : {DType::kE4M3, DType::kE5M2}) {
          std::vector<std::uint8_t> a(blocks * 33 + 1, 0xAA);
          std::vector<std::uint8_t> b = a;
          loops.of<TypeParam>().format(format).encode_mx(x.data(), blocks, a.data(), a.data() + blocks * 32);
          reference.of<TypeParam>().format(format).encode_mx(x.data(), blocks, b.data(),
                                                             b.data() + blocks * 32);
          ASSERT_TRUE(same_bytes(a, b)) << blocks;
        }
      }
    }
  });
}

TYPED_TEST(LoopsTest, DecodedValuesAreThoseOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (std::size_t length : lengths()) {
      std::vector<std::uint8_t> codes(length);
      for (std::size_t i = 0; i < length; ++i) codes[i] = static_cast<std::uint8_t>(i * 7 + length);
      for (const DType format : {DType::kE4M3, DType::kE5M2}) {
        for (const float scale : {1.0F, 0.37F, 0x1p-127F, 0x1.FEp127F, kInf, 0.0F}) {
          for (const Store store : {Store::kCached, Store::kStreamed}) {
            std::vector<TypeParam> a(length + 2, narrowed<TypeParam>(77.0F));
            std::vector<TypeParam> b = a;
            loops.of<TypeParam>().format(format).decode(codes.data(), length, scale, a.data() + 1, store);
            reference.of<TypeParam>().format(format).decode(codes.data(), length, scale, b.data() + 1, store);
            ASSERT_TRUE(same_bytes(a, b)) << length << ' ' << scale;
          }
        }
      }
    }
  });
}

TYPED_TEST(LoopsTest, ErrorsHaveTheBitsOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const bool specials : {false, true}) {
      for (const std::size_t length : lengths()) {
        SCOPED_TRACE(length);
        const auto x = mixture<TypeParam>(length, static_cast<unsigned>(length) + 29, specials);
        for (const DType format : {DType::kE4M3, DType::kE5M2}) {
          for (const float scale : {1.0F, 0.01F, 100.0F, 0x1p120F}) {
            const cpu::Scaling scaling{scale, 1.0F / scale};
            QuantizationError a;
            QuantizationError b;
            a.error_squares = b.error_squares = 0.1;
            loops.of<TypeParam>().format(format).add_error(x.data(), nullptr, length, scaling, a);
            reference.of<TypeParam>().format(format).add_error(x.data(), nullptr, length, scaling, b);
            expect_same(a, b);
            // Codes that the cast made, all but the last.
            std::vector<std::uint8_t> codes(length);
            reference.of<TypeParam>().format(format).encode(x.data(), length, scale, codes.data(),
                                                            Store::kCached);
            for (const int change : {0, 2}) {
              if (length != 0) codes.back() = static_cast<std::uint8_t>(codes.back() ^ change);
              loops.of<TypeParam>().format(format).add_error(x.data(), codes.data(), length, scaling, a);
              reference.of<TypeParam>().format(format).add_error(x.data(), codes.data(), length, scaling, b);
              expect_same(a, b);
            }
            // Any codes: all of them, NaN and Inf included.
            for (std::size_t i = 0; i < length; ++i) codes[i] = static_cast<std::uint8_t>(i * 11 + length);
            loops.of<TypeParam>().format(format).add_error(x.data(), codes.data(), length, scaling, a);
            reference.of<TypeParam>().format(format).add_error(x.data(), codes.data(), length, scaling, b);
            expect_same(a, b);
          }
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

/// Elements within a few ulps of half of the smallest code and of other ties, under scales a few ulps from
/// powers of two and others: where a difference of x and its code may just be an fp32 or just not.
TEST(Loops, ErrorsNextToTiesHaveTheBitsOfTheReference) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      for (std::uint32_t i = 0; i < 400; ++i) {
        const std::uint32_t mantissa = i < 100 ? i : i < 200 ? 0x800000U - (i - 99) : i * 20'011U % 0x800000U;
        const float scale = from_bits(((100U + i % 60) << 23) | mantissa);
        const cpu::Scaling scaling{scale, 1.0F / scale};
        std::vector<float> x;
        for (const float tie : {0x1p-10F, 0x3p-10F, 0x1p-17F, 0x3p-17F, 0x1.1p0F, 0x1.2p3F, 440.0F}) {
          const std::uint32_t around =
              bits_of(static_cast<float>(static_cast<double>(tie) / static_cast<double>(scale)));
          for (std::uint32_t step = 0; step < 17; ++step) x.push_back(from_bits(around + step - 8));
        }
        QuantizationError a;
        QuantizationError b;
        loops.f32.format(format).add_error(x.data(), nullptr, x.size(), scaling, a);
        reference.f32.format(format).add_error(x.data(), nullptr, x.size(), scaling, b);
        expect_same(a, b);
        ASSERT_FALSE(testing::Test::HasFailure()) << bits_of(scale);
        // One after the other, so that no sum hides the last bit of a square.
        for (const float each : x) {
          QuantizationError one;
          QuantizationError other;
          loops.f32.format(format).add_error(&each, nullptr, 1, scaling, one);
          reference.f32.format(format).add_error(&each, nullptr, 1, scaling, other);
          ASSERT_EQ(bits_of(one.error_squares), bits_of(other.error_squares))
              << bits_of(scale) << ' ' << bits_of(each);
          ASSERT_EQ(bits_of(one.quantized_squares), bits_of(other.quantized_squares)) << bits_of(scale);
          ASSERT_EQ(bits_of(one.max_error), bits_of(other.max_error)) << bits_of(scale);
        }
      }
    }
  });
}

TEST(Loops, TransposesOfBytes) {
  for_each_target([](const Loops& loops, const Loops& reference) {
    for (const Store store : {Store::kCached, Store::kStreamed}) {
      for (const std::size_t rows : {0U, 1U, 15U, 16U, 31U, 32U, 63U, 64U, 65U, 128U, 200U}) {
        for (const std::size_t cols : {0U, 1U, 15U, 16U, 17U, 48U, 100U, 128U}) {
          const std::size_t in_stride = cols + 5;
          const std::size_t out_stride = (rows + 63) / 64 * 64;
          std::vector<std::uint8_t> in(rows * in_stride + 1);
          for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 31 + i / 256);
          Tensor a(DType::kE4M3, {static_cast<std::int64_t>(cols * out_stride + 64)});
          Tensor b(DType::kE4M3, a.shape());
          loops.transpose(in.data(), in_stride, rows, cols, a.values<std::uint8_t>().data(), out_stride,
                          store);
          reference.transpose(in.data(), in_stride, rows, cols, b.values<std::uint8_t>().data(), out_stride,
                              store);
          ASSERT_TRUE(std::ranges::equal(a.values<std::uint8_t>(), b.values<std::uint8_t>()))
              << rows << 'x' << cols;
        }
      }
    }
  });
}

}  // namespace
}  // namespace amaxscope::test

// The codecs bit for bit against the CUDA toolkit's host conversions: every 16-bit input, every tie of the
// formats and its neighbours, every code.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/half.hpp"
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "tests/kernels/cuda_conversions.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

/// Every bf16 and f16 value, every midpoint between neighbours of a format and of f16, each with both fp32
/// neighbours.
const std::vector<float>& inputs() {
  static const std::vector<float> values = [] {
    std::vector<float> result;
    const auto add = [&](float x) {
      for (const std::uint32_t bits : {bits_of(x) - 1, bits_of(x), bits_of(x) + 1})
        result.push_back(from_bits(bits));
    };
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      add(from_bits(bits << 16));
      add(from_bits((bits << 16) | 0x8000U));  // the tie between two bf16 values
      const float half = to_float(F16{static_cast<std::uint16_t>(bits)});
      add(half);
      if ((bits & 0x7FFFU) < 0x7BFFU) add((half + to_float(F16{static_cast<std::uint16_t>(bits + 1)})) / 2);
    }
    for (const MinifloatGrid& grid : {MinifloatGrid::e4m3(), MinifloatGrid::e5m2(), MinifloatGrid::e2m1()}) {
      for (std::size_t code = 0; code + 1 < grid.values().size(); ++code) {
        const auto middle = static_cast<float>((grid.values()[code] + grid.values()[code + 1]) / 2);
        add(middle);
        add(-middle);
      }
    }
    return result;
  }();
  return values;
}

template <class Ours, class Theirs>
void expect_equal(Ours&& ours, Theirs&& theirs) {
  for (const float x : inputs()) {
    ASSERT_EQ(ours(x), theirs(x)) << x << " = 0x" << std::hex << bits_of(x);
  }
}

TEST(CudaCodec, E4M3) { expect_equal(encode_fp8<DType::kE4M3>, cuda_e4m3); }
TEST(CudaCodec, E5M2) { expect_equal(encode_fp8<DType::kE5M2>, cuda_e5m2); }
TEST(CudaCodec, E2M1) { expect_equal(encode_e2m1, cuda_e2m1); }
TEST(CudaCodec, E8M0) { expect_equal(encode_e8m0, cuda_e8m0); }
TEST(CudaCodec, BF16) {
  expect_equal([](float x) { return to_bf16(x).bits; }, cuda_bf16);
}
TEST(CudaCodec, F16) {
  expect_equal([](float x) { return to_f16(x).bits; }, cuda_f16);
}

/// Equal bits, or both NaN.
void expect_same_value(float ours, float theirs, int code) {
  if (std::isnan(theirs)) {
    EXPECT_TRUE(std::isnan(ours)) << code;
  } else {
    EXPECT_EQ(bits_of(ours), bits_of(theirs)) << code;
  }
}

TEST(CudaCodec, DecodesEveryCode) {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    __nv_fp8_e4m3 e4m3;
    e4m3.__x = code;
    expect_same_value(decode_fp8<DType::kE4M3>(code), static_cast<float>(e4m3), i);
    __nv_fp8_e5m2 e5m2;
    e5m2.__x = code;
    expect_same_value(decode_fp8<DType::kE5M2>(code), static_cast<float>(e5m2), i);
    __nv_fp8_e8m0 e8m0;
    e8m0.__x = code;
    expect_same_value(decode_e8m0(code), static_cast<float>(e8m0), i);
    __nv_fp4_e2m1 e2m1;
    e2m1.__x = static_cast<std::uint8_t>(code & 0xFU);
    expect_same_value(decode_e2m1(code), static_cast<float>(e2m1), i);
  }
}

TEST(CudaCodec, WidensEveryHalf) {
  for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    expect_same_value(to_float(F16{bits}), __half2float(__ushort_as_half(bits)), static_cast<int>(i));
    expect_same_value(to_float(BF16{bits}), __bfloat162float(__ushort_as_bfloat16(bits)),
                      static_cast<int>(i));
  }
}

TEST(CudaCodec, PacksAsTheToolkitDoes) {
  const float2 pair{1.0F, -6.0F};
  EXPECT_EQ(pack_e2m1(encode_e2m1(1.0F), encode_e2m1(-6.0F)),
            __nv_cvt_float2_to_fp4x2(pair, __NV_E2M1, cudaRoundNearest));
}

}  // namespace
}  // namespace amaxscope::test

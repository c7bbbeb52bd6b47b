#include "kernels/dequantize.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "kernels/codec/fp8.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

Tensor every_code(DType format) {
  Tensor codes(format, {16, 16});
  for (std::size_t i = 0; i < 256; ++i) codes.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i);
  return codes;
}

TEST(DequantizeFp8, EveryCodeTimesTheScaleInverse) {
  constexpr std::array<float, 4> kScaleInverses = {1.0F, 0x3.8p-9F, 1.0F / 37.3F, 0x1p-127F};
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    const MinifloatGrid grid = format == DType::kE4M3 ? MinifloatGrid::e4m3() : MinifloatGrid::e5m2();
    for (const float scale_inv : kScaleInverses) {
      Tensor f32(DType::kF32, {16, 16});
      Tensor f16(DType::kF16, {16, 16});
      Tensor bf16(DType::kBF16, {16, 16});
      dequantize_fp8(every_code(format), scalar(scale_inv), f32);
      dequantize_fp8(every_code(format), scalar(scale_inv), f16);
      dequantize_fp8(every_code(format), scalar(scale_inv), bf16);
      for (std::size_t code = 0; code < 256; ++code) {
        const std::size_t magnitude = code & 0x7F;
        if (magnitude >= grid.values().size()) {
          const float special = f32.values<float>()[code];
          if (format == DType::kE5M2 && magnitude == 0x7C) {
            EXPECT_EQ(special, code == 0x7C ? kInf : -kInf);
          } else {
            EXPECT_TRUE(std::isnan(special));
            EXPECT_EQ(f16.values<F16>()[code].bits, 0x7FFF);
            EXPECT_EQ(bf16.values<BF16>()[code].bits, 0x7FFF);
          }
          continue;
        }
        const auto value =
            static_cast<float>(code < 0x80 ? grid.values()[magnitude] : -grid.values()[magnitude]);
        const float product = value * scale_inv;
        ASSERT_EQ(bits_of(f32.values<float>()[code]), bits_of(product)) << code;
        ASSERT_EQ(f16.values<F16>()[code].bits, to_f16(product).bits) << code;
        ASSERT_EQ(bf16.values<BF16>()[code].bits, to_bf16(product).bits) << code;
      }
    }
  }
}

TEST(DequantizeFp8, EmptyTensorsMayHaveNoData) {
  Tensor out(DType::kF32, {0, 4});
  dequantize_fp8(TensorView(nullptr, DType::kE4M3, {0, 4}), scalar(1), out);
}

TEST(DequantizeFp8, RefusesWhatDoesNotFit) {
  const Tensor codes(DType::kE4M3, {2, 3});
  Tensor out(DType::kF32, {2, 3});
  Tensor other(DType::kF32, {3, 2});
  Tensor integers(DType::kI32, {2, 3});
  EXPECT_THROW(dequantize_fp8(codes, scalar(1), other), Error);
  EXPECT_THROW(dequantize_fp8(codes, scalar(1), integers), Error);
  EXPECT_THROW(dequantize_fp8(Tensor(DType::kU8, {2, 3}), scalar(1), out), Error);
  EXPECT_THROW(dequantize_fp8(codes, Tensor(DType::kBF16, {1}), out), Error);
}

}  // namespace
}  // namespace amaxscope::test

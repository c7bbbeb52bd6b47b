#include "kernels/finite_scan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/half.hpp"

namespace amaxscope {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(FiniteScan, FindsTheFirstAndCountsAll) {
  const Tensor x = Tensor::of<float>({1, -3, 2, -kInf, 5, kNaN}, {2, 3});
  const FiniteScan scan = finite_scan(x);
  EXPECT_EQ(scan.first, 3);
  EXPECT_FALSE(scan.first_is_nan);
  EXPECT_EQ(scan.count, 2U);
  EXPECT_EQ(scan.amax, 5.0F);
}

TEST(FiniteScan, LargestFiniteAndSmallestNonfinitePatternsAreTold) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(finite_scan(Tensor::of<float>({largest, -largest}, {2})).first, -1);
  EXPECT_EQ(finite_scan(Tensor::of<float>({largest}, {1})).amax, largest);
  EXPECT_EQ(finite_scan(Tensor::of<BF16>({BF16{0x7F7F}, BF16{0xFF80}}, {2})).first, 1);
  EXPECT_EQ(finite_scan(Tensor::of<F16>({F16{0x7BFF}, F16{0xFC01}}, {2})).first, 1);
  EXPECT_TRUE(finite_scan(Tensor::of<F16>({F16{0x7BFF}, F16{0xFC01}}, {2})).first_is_nan);
  EXPECT_EQ(finite_scan(Tensor::of<F16>({F16{0x7BFF}}, {1})).amax, 65504.0F);
}

TEST(FiniteScan, EmptyAndPaddedTensors) {
  EXPECT_EQ(finite_scan(TensorView(nullptr, DType::kF32, {0, 8})).first, -1);
  // cases.md case 32: 3 x 4 with row stride 8, NaN in the gaps only; and rows that do not count.
  std::array<float, 24> padded{};
  padded.fill(kNaN);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t col = 0; col < 4; ++col) padded[row * 8 + col] = 1.0F;
  }
  EXPECT_EQ(finite_scan(TensorView(padded.data(), DType::kF32, {3, 4}, {}, {}, 8)).count, 0U);
  padded[2 * 8] = kNaN;
  EXPECT_EQ(finite_scan(TensorView(padded.data(), DType::kF32, {2, 4}, {}, {}, 8)).count, 0U);
  EXPECT_EQ(finite_scan(TensorView(padded.data(), DType::kF32, {3, 4}, {}, {}, 8)).first, 8);
}

TEST(FiniteScan, CodesOfEveryFormat) {
  const auto first_of = [](DType dtype, std::uint8_t code) {
    const std::array<std::uint8_t, 2> codes = {0, code};
    return finite_scan(TensorView(codes.data(), dtype, {2})).first;
  };
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(first_of(DType::kE4M3, byte) == 1, (code & 0x7F) == 0x7F) << code;
    EXPECT_EQ(first_of(DType::kE5M2, byte) == 1, (code & 0x7F) >= 0x7C) << code;
    EXPECT_EQ(first_of(DType::kE8M0, byte) == 1, code == 0xFF) << code;
  }
}

}  // namespace
}  // namespace amaxscope

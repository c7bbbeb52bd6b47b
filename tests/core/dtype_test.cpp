#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "core/device.hpp"

namespace amaxscope {
namespace {

struct Expected {
  DType dtype;
  std::string_view name;
  int bits;
  bool high_precision;
  bool fp8;
};

constexpr std::array<Expected, 13> kTypes = {{{DType::kF64, "f64", 64, true, false},
                                              {DType::kF32, "f32", 32, true, false},
                                              {DType::kF16, "f16", 16, true, false},
                                              {DType::kBF16, "bf16", 16, true, false},
                                              {DType::kE4M3, "e4m3", 8, false, true},
                                              {DType::kE5M2, "e5m2", 8, false, true},
                                              {DType::kE8M0, "e8m0", 8, false, false},
                                              {DType::kE2M1, "e2m1", 4, false, false},
                                              {DType::kU8, "u8", 8, false, false},
                                              {DType::kU32, "u32", 32, false, false},
                                              {DType::kI32, "i32", 32, false, false},
                                              {DType::kU64, "u64", 64, false, false},
                                              {DType::kI64, "i64", 64, false, false}}};

TEST(DType, NamesWidthsAndKinds) {
  for (const Expected& expected : kTypes) {
    EXPECT_EQ(to_string(expected.dtype), expected.name);
    EXPECT_EQ(bits_per_element(expected.dtype), expected.bits) << expected.name;
    EXPECT_EQ(is_high_precision(expected.dtype), expected.high_precision) << expected.name;
    EXPECT_EQ(is_fp8(expected.dtype), expected.fp8) << expected.name;
  }
}

TEST(Device, Names) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceKind::kCuda, 3}), "cuda:3");
  EXPECT_NE((Device{DeviceKind::kCuda, 0}), (Device{DeviceKind::kCuda, 1}));
}

}  // namespace
}  // namespace amaxscope

#include "runtime/stats/accumulator.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

namespace amaxscope {
namespace {

TEST(OrderBits, KeepsTheOrderOfFloats) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending = {-inf,      -3.4e38F, -1.0F,  -0x1p-149F, 0.0F, 0x1p-149F,
                                        0x1p-126F, 1.0F,     464.0F, 3.4e38F,    inf};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_EQ(from_order_bits(order_bits(ascending[i])), ascending[i]);
    if (i > 0) {
      EXPECT_LT(order_bits(ascending[i - 1]), order_bits(ascending[i])) << ascending[i];
    }
  }
}

TEST(OrderBits, BothZerosAreEqual) { EXPECT_EQ(order_bits(-0.0F), order_bits(0.0F)); }

// The sign-flip rule worked by hand: 1.0 is 0x3F800000, -1.0 is 0xBF800000.
TEST(OrderBits, HandWorkedPatterns) {
  EXPECT_EQ(order_bits(1.0F), 0xBF800000U);
  EXPECT_EQ(order_bits(-1.0F), 0x407FFFFFU);
  EXPECT_EQ(order_bits(0.0F), 0x80000000U);
}

}  // namespace
}  // namespace amaxscope

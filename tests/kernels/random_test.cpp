// The parts NVFP4 is made of: random numbers, stochastic rounding, the Hadamard rotation.
#include <gtest/gtest.h>

#include "kernels/codec/fp4.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/codec/philox.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

TEST(Philox, PublishedVectors) {
  // Random123's known answers for philox4x32-10.
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U}));
  EXPECT_EQ(philox4x32_10({0xFFFFFFFFU, 0xFFFFFFFFU, 0xFFFFFFFFU, 0xFFFFFFFFU}, {0xFFFFFFFFU, 0xFFFFFFFFU}),
            (PhiloxCounter{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU}));
  EXPECT_EQ(philox4x32_10({0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}, {0xA4093822U, 0x299F31D0U}),
            (PhiloxCounter{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U}));
}

TEST(StochasticE2M1, GridPointsNeverMove) {
  const MinifloatGrid grid = MinifloatGrid::e2m1();
  for (const double value : grid.values()) {
    for (const float sign : {1.0F, -1.0F}) {
      const float x = sign * static_cast<float>(value);
      for (int random = 0; random < 256; ++random) {
        ASSERT_EQ(encode_e2m1_stochastic(x, static_cast<std::uint8_t>(random)), encode_e2m1(x))
            << x << ' ' << random;
      }
    }
  }
}

TEST(StochasticE2M1, GoesUpAsOftenAsTheDistanceSays) {
  const MinifloatGrid e2m1 = MinifloatGrid::e2m1();
  const std::vector<double>& grid = e2m1.values();
  for (int steps = 0; steps < 6 * 64; ++steps) {
    const double x = steps / 64.0 + 0.003;
    std::size_t lower = 0;
    while (lower + 1 < grid.size() && grid[lower + 1] <= x) ++lower;
    const double distance = (x - grid[lower]) / (grid[lower + 1] - grid[lower]);
    int ups = 0;
    for (int random = 0; random < 256; ++random) {
      const std::uint8_t code =
          encode_e2m1_stochastic(static_cast<float>(-x), static_cast<std::uint8_t>(random));
      ASSERT_TRUE(code == (0x8U | lower) || code == (0x8U | (lower + 1))) << x;
      ups += code == (0x8U | (lower + 1)) ? 1 : 0;
    }
    ASSERT_NEAR(ups, std::floor(distance * 256), 1.0) << x;
  }
}

TEST(StochasticE2M1, SpecialValues) {
  for (const int random : {0, 128, 255}) {
    const auto byte = static_cast<std::uint8_t>(random);
    EXPECT_EQ(encode_e2m1_stochastic(kNaN, byte), 0x7);
    EXPECT_EQ(encode_e2m1_stochastic(-kNaN, byte), 0x7);
    EXPECT_EQ(encode_e2m1_stochastic(kInf, byte), 0x7);
    EXPECT_EQ(encode_e2m1_stochastic(-kInf, byte), 0xF);
    EXPECT_EQ(encode_e2m1_stochastic(-1e30F, byte), 0xF);
    EXPECT_EQ(encode_e2m1_stochastic(-0.0F, byte), 0x8);
    EXPECT_EQ(encode_e2m1_stochastic(kDenormal, byte), 0x0);
  }
}

TEST(Hadamard, IsTheMatrixAndOrthogonal) {
  constexpr int kSigns[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (std::size_t i = 0; i < 16; ++i) {
    std::array<float, 16> x{};
    x[i] = 1.0F;
    rotate(x.data());
    for (std::size_t j = 0; j < 16; ++j) {
      // Sylvester's matrix: the sign is the parity of the bits that both indices have.
      const int parity = __builtin_popcount(static_cast<unsigned>(i & j)) % 2;
      EXPECT_EQ(x[j], static_cast<float>(kSigns[i]) * (parity == 0 ? 0.25F : -0.25F)) << i << ' ' << j;
    }
  }
}

TEST(Hadamard, ThereAndBack) {
  std::mt19937 engine(1);
  std::uniform_int_distribution<int> integer(-1000, 1000);
  std::array<float, 16> x;
  for (float& value : x) value = static_cast<float>(integer(engine));
  std::array<float, 16> y = x;
  rotate(y.data());
  EXPECT_NE(x, y);
  double before = 0;
  double after = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    before += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    after += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  EXPECT_EQ(before, after) << "lengths are kept";
  rotate_back(y.data());
  EXPECT_EQ(x, y);
}

}  // namespace
}  // namespace amaxscope::test

#include "runtime/stats/gemm_error_accumulator.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::flags_of;
using ::testing::IsEmpty;
using testing::names_of;
using testing::reduce_over;
using testing::value_of;

// Two elements: R = [3, 4], Y = [3, 2], so E = [0, -2].
GemmError sample() {
  return {.numel = 2,
          .error_squares = 4,
          .reference_squares = 25,
          .result_squares = 13,
          .product = 17,
          .error_reference = -8,
          .from_a = 3,
          .from_b = 0.5,
          .from_rest = 0.25,
          .from_accumulation = 0.25};
}

std::vector<StatValue> values_of(Gemm gemm, const GemmError& error) {
  GemmErrorAccumulator accumulator(gemm);
  accumulator.feed(error);
  return reduce_over({&accumulator});
}

TEST(GemmErrorAccumulator, Formulas) {
  const auto values = values_of(Gemm::kFprop, sample());
  EXPECT_DOUBLE_EQ(*value_of(values, "relative_error"), 2.0 / 5);
  EXPECT_DOUBLE_EQ(*value_of(values, "cosine"), 17.0 / (5 * std::sqrt(13.0)));
  EXPECT_DOUBLE_EQ(*value_of(values, "sqnr"), 10 * std::log10(25.0 / 4));
  EXPECT_EQ(value_of(values, "error_from_activation%"), 75.0);
  EXPECT_EQ(value_of(values, "error_from_weight%"), 12.5);
  EXPECT_EQ(value_of(values, "error_from_rest%"), 6.25);
  EXPECT_EQ(value_of(values, "error_from_accumulation%"), 6.25);
  EXPECT_EQ(value_of(values, "result_norm"), 5.0);
  EXPECT_EQ(values.size(), 8U);
}

TEST(GemmErrorAccumulator, GradientNoiseAndBias) {
  auto values = values_of(Gemm::kWgrad, sample());
  EXPECT_DOUBLE_EQ(*value_of(values, "gradient_noise"), 2.0 / 5);
  EXPECT_THAT(flags_of(values, "gradient_noise"), IsEmpty());
  EXPECT_DOUBLE_EQ(*value_of(values, "gradient_bias"), -8.0 / 25);
  EXPECT_TRUE(value_of(values, "error_from_gradient%").has_value());
  EXPECT_TRUE(value_of(values, "error_from_activation%").has_value());
  GemmError noisy = sample();
  noisy.error_squares = 25.0 / 3 + 0.01;
  values = values_of(Gemm::kWgrad, noisy);
  EXPECT_THAT(flags_of(values, "gradient_noise"), ElementsAre("noise_line"));
  EXPECT_THAT(flags_of(values, "relative_error"), IsEmpty());
}

// Shards and micro-batches: sums add, quotients do not.
TEST(GemmErrorAccumulator, MergesAsSums) {
  GemmErrorAccumulator first(Gemm::kFprop);
  GemmErrorAccumulator second(Gemm::kFprop);
  first.feed(sample());
  first.feed(sample());
  GemmError other;
  other.numel = 1;
  other.error_squares = 16;
  other.reference_squares = 94;
  other.from_b = 16;
  second.feed(other);
  const auto values = reduce_over({&first, &second});
  EXPECT_DOUBLE_EQ(*value_of(values, "relative_error"), std::sqrt(24.0 / 144));
  EXPECT_DOUBLE_EQ(*value_of(values, "error_from_weight%"), 100 * 17.0 / 24);
  EXPECT_DOUBLE_EQ(*value_of(values, "result_norm"), 12.0);
}

TEST(GemmErrorAccumulator, NoErrorAndNoReference) {
  GemmError exact;
  exact.numel = 2;
  exact.reference_squares = exact.result_squares = exact.product = 9;
  auto values = values_of(Gemm::kDgrad, exact);
  EXPECT_EQ(value_of(values, "relative_error"), 0.0);
  EXPECT_EQ(value_of(values, "cosine"), 1.0);
  EXPECT_THAT(flags_of(values, "sqnr"), ElementsAre("exact"));
  EXPECT_THAT(names_of(values), ElementsAre("relative_error", "cosine", "sqnr", "result_norm"));
  GemmError from_nothing;
  from_nothing.numel = 2;
  from_nothing.error_squares = from_nothing.result_squares = from_nothing.from_accumulation = 4;
  values = values_of(Gemm::kWgrad, from_nothing);
  EXPECT_FALSE(value_of(values, "relative_error").has_value());
  EXPECT_FALSE(value_of(values, "gradient_noise").has_value());
  EXPECT_EQ(value_of(values, "cosine"), 0.0);
  EXPECT_EQ(value_of(values, "sqnr"), -std::numeric_limits<double>::infinity());
}

TEST(GemmErrorAccumulator, CountsWhatIsNotFinite) {
  GemmError broken = sample();
  broken.numel = 3;
  broken.nonfinite = 1;
  EXPECT_EQ(value_of(values_of(Gemm::kFprop, broken), "nonfinite"), 1.0);
  GemmError all;
  all.numel = all.nonfinite = 3;
  EXPECT_THAT(names_of(values_of(Gemm::kFprop, all)), ElementsAre("nonfinite"));
}

TEST(GemmErrorAccumulator, NothingFedReportsNothing) {
  GemmErrorAccumulator accumulator(Gemm::kFprop);
  EXPECT_FALSE(accumulator.ran());
  EXPECT_THAT(reduce_over({&accumulator}), IsEmpty());
  accumulator.feed({});
  EXPECT_TRUE(accumulator.ran());
  EXPECT_THAT(reduce_over({&accumulator}), IsEmpty());
  accumulator.feed(sample());
  accumulator.reset();
  EXPECT_FALSE(accumulator.ran());
  EXPECT_THAT(reduce_over({&accumulator}), IsEmpty());
}

}  // namespace
}  // namespace amaxscope

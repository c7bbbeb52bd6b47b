// The statistics of QuantizationAccumulator that speak of blocks, energies and ages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>

#include "runtime/stats/quantization_accumulator.hpp"
#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope {
namespace {

using ::testing::IsEmpty;
using testing::names_of;
using testing::reduce_over;
using testing::value_of;

QuantizationAccumulator with(std::vector<std::string> names) {
  return {"mxfp8_", "", std::move(names), OverflowRule::kRoundsPastMaximum};
}

QuantizationSample sample() {
  QuantizationSample result;
  BlockQuantizationError& error = result.measured;
  error.elements.numel = error.elements.compared = 64;
  error.elements.saturated = 2;
  error.elements.underflows = 8;
  error.elements.signal_squares = 400;
  error.elements.saturated_squares = 100;
  error.elements.flushed_squares = 1;
  error.elements.error_squares = 16;
  error.blocks = 4;
  error.zero_blocks = 1;
  error.saturated_blocks = 1;
  error.flushed_blocks = 2;
  error.scale_min = 0.25F;
  error.scale_max = 2;
  error.worst[0] = {12, 0, 32};
  error.worst[1] = {4, 1, 0};
  return result;
}

TEST(QuantizationBlocks, Formulas) {
  QuantizationAccumulator accumulator =
      with({"saturated%", "flushed%", "saturated_energy%", "flushed_energy%", "zero_blocks",
            "saturated_blocks%", "flushed_blocks%", "scale_spread"});
  accumulator.feed(sample());
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "mxfp8_saturated%"), 3.125);
  EXPECT_EQ(value_of(values, "mxfp8_flushed%"), 12.5);
  EXPECT_EQ(value_of(values, "mxfp8_saturated_energy%"), 25.0);
  EXPECT_EQ(value_of(values, "mxfp8_flushed_energy%"), 0.25);
  EXPECT_EQ(value_of(values, "mxfp8_zero_blocks"), 1.0);
  EXPECT_EQ(value_of(values, "mxfp8_saturated_blocks%"), 25.0);
  EXPECT_EQ(value_of(values, "mxfp8_flushed_blocks%"), 50.0);
  EXPECT_EQ(value_of(values, "mxfp8_scale_spread"), 3.0);  // log2(2 / 0.25)
}

TEST(QuantizationBlocks, EveryBlockZeroHasNoScale) {
  QuantizationAccumulator accumulator =
      with({"scale_inv_min", "scale_inv_max", "scale_spread", "zero_blocks"});
  QuantizationSample zeros;
  zeros.measured.elements.numel = zeros.measured.elements.compared = 64;
  zeros.measured.blocks = zeros.measured.zero_blocks = 2;
  accumulator.feed(zeros);
  EXPECT_THAT(names_of(reduce_over({&accumulator})), ::testing::ElementsAre("mxfp8_zero_blocks"));
  QuantizationAccumulator other = with({"scale_inv_min", "scale_inv_max", "scale_spread", "zero_blocks"});
  other.feed(sample());
  EXPECT_EQ(value_of(reduce_over({&accumulator, &other}), "mxfp8_scale_inv_min"), 0.25);
}

TEST(QuantizationBlocks, AgeIsTheLargest) {
  QuantizationAccumulator accumulator = with({"scale_age"});
  EXPECT_THAT(reduce_over({&accumulator}), IsEmpty());
  QuantizationSample young = sample();
  young.scale_age = 0;
  accumulator.feed(young);
  EXPECT_EQ(value_of(reduce_over({&accumulator}), "mxfp8_scale_age"), 0.0);
  QuantizationAccumulator other = with({"scale_age"});
  QuantizationSample old = sample();
  old.scale_age = 17;
  other.feed(old);
  EXPECT_EQ(value_of(reduce_over({&accumulator, &other}), "mxfp8_scale_age"), 17.0);
}

TEST(QuantizationBlocks, AWeightInCodesOnlyHasItsScales) {
  QuantizationAccumulator accumulator = with({"mse", "underflows%", "scale_inv_min", "scale_inv_max"});
  QuantizationSample scales;
  scales.scale_only = true;
  scales.measured.scale_min = 0.5F;
  scales.measured.scale_max = 8;
  accumulator.feed(scales);
  const auto values = reduce_over({&accumulator});
  EXPECT_THAT(names_of(values), ::testing::ElementsAre("mxfp8_scale_inv_min", "mxfp8_scale_inv_max"));
  EXPECT_EQ(value_of(values, "mxfp8_scale_inv_max"), 8.0);
}

/// What the reduction of two ranks, 3 and 5 of the world, would hand back with their details side by side.
std::vector<StatValue> reduce_with_details(const std::array<const QuantizationAccumulator*, 2>& ranks) {
  std::vector<std::uint32_t> max(ranks[0]->max_words());
  std::vector<double> sums(ranks[0]->sum_words());
  for (const QuantizationAccumulator* rank : ranks) {
    std::vector<std::uint32_t> own_max(max.size());
    std::vector<double> own_sums(sums.size());
    rank->pack_max(own_max);
    rank->pack_sums(own_sums);
    for (std::size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], own_max[i]);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += own_sums[i];
  }
  const std::array<int, 2> world = {3, 5};
  ReducedStat reduced{max, sums, {}, {}, world};
  const std::size_t words = ranks[0]->detail_words(reduced);
  std::vector<std::uint32_t> details(2 * words);
  for (std::size_t i = 0; words > 0 && i < 2; ++i)
    ranks[i]->pack_details(std::span(details).subspan(i * words, words));
  reduced.details = details;
  return ranks[0]->values(reduced);
}

TEST(QuantizationBlocks, WorstBlocksOfAllRanksAndMicrobatches) {
  QuantizationAccumulator first = with({"worst_blocks"});
  QuantizationAccumulator second = with({"worst_blocks"});
  first.feed(sample());
  QuantizationSample later = sample();
  later.microbatch = 1;
  later.measured.worst = {};
  later.measured.worst[0] = {8, 64, 96};
  second.feed(later);
  // Errors 16 + 16; blocks of 12 (rank 3), 8 (rank 5, micro-batch 1), 4 (rank 3).
  const auto values = reduce_with_details({&first, &second});
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_1_error%"), 37.5);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_1_row"), 0.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_1_col"), 32.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_1_rank"), 3.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_2_error%"), 25.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_2_row"), 64.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_2_rank"), 5.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_2_microbatch"), 1.0);
  EXPECT_EQ(value_of(values, "mxfp8_worst_block_3_row"), 1.0);
  EXPECT_EQ(values.size(), 15U);
}

TEST(QuantizationBlocks, DetailsTravelOnlyWhenAskedFor) {
  QuantizationAccumulator asked = with({"worst_blocks"});
  QuantizationAccumulator not_asked = with({"mse"});
  for (QuantizationAccumulator* one : {&asked, &not_asked}) one->feed(sample());
  std::vector<std::uint32_t> max(asked.max_words());
  std::vector<double> sums(asked.sum_words());
  asked.pack_max(max);
  asked.pack_sums(sums);
  EXPECT_GT(asked.detail_words({max, sums, {}}), 0U);
  EXPECT_EQ(not_asked.detail_words({max, sums, {}}), 0U);
  QuantizationAccumulator exact = with({"worst_blocks"});
  QuantizationSample none = sample();
  none.measured.elements.error_squares = 0;
  exact.feed(none);
  exact.pack_sums(sums);
  EXPECT_EQ(exact.detail_words({max, sums, {}}), 0U);
}

}  // namespace
}  // namespace amaxscope

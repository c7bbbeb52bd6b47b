#include "runtime/stats/update_accumulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names_of;
using testing::reduce_step;
using testing::value_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

UpdateAccumulator all_of_them() { return UpdateAccumulator(UpdateAccumulator::known_names()); }

Tensor row(const std::vector<float>& values) {
  return Tensor::of<float>(std::span<const float>(values), Shape{static_cast<std::int64_t>(values.size())});
}

void feed(UpdateAccumulator& into, const std::vector<float>& weight, const std::vector<float>& update,
          const std::vector<float>& normalized) {
  const Tensor owned_weight = row(weight);
  const Tensor owned_normalized = row(normalized);
  const TensorView weight_view = owned_weight;
  const TensorView normalized_view = owned_normalized;
  into.feed(row(update), &weight_view, &normalized_view);
}

TEST(UpdateAccumulator, RatiosAreThoseOfTheWholeTensor) {
  UpdateAccumulator a = all_of_them();
  UpdateAccumulator b = all_of_them();
  // Weights 3 4 | 12: rms 13 / sqrt 3. Updates 0.3 0 | 0.4: rms 0.5 / sqrt 3. g / sqrt v: 1 -1 | 2.
  feed(a, {3, 4}, {0.3F, 0}, {1, -1});
  feed(b, {12}, {0.4F}, {2});
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_THAT(names_of(values), ElementsAre("update_ratio", "lost_updates%", "adam_ratio"));
  EXPECT_NEAR(*value_of(values, "update_ratio"), 0.5 / 13, 1e-8);
  EXPECT_EQ(value_of(values, "lost_updates%"), 0.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "adam_ratio"), std::sqrt(2.0));
}

TEST(UpdateAccumulator, LostUpdatesAreAShareOfThoseThatAreNotZero) {
  UpdateAccumulator a({"lost_updates%"});
  UpdateAccumulator b({"lost_updates%"});
  // On 1 in f32 an update of 2^-30 is lost, on 2^-20 it is not.
  feed(a, {1, 1, 1}, {0x1p-30F, 0, 0x1p-3F}, {0, 0, 0});
  feed(b, {0x1p-20F}, {0x1p-30F}, {0});
  EXPECT_DOUBLE_EQ(*value_of(reduce_step({&a, &b}, 0), "lost_updates%"), 100.0 / 3);
}

TEST(UpdateAccumulator, AnEmptyShardAddsNothing) {
  UpdateAccumulator a = all_of_them();
  UpdateAccumulator b = all_of_them();
  feed(a, {}, {}, {});
  feed(b, {2}, {1}, {3});
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_EQ(value_of(values, "update_ratio"), 0.5);
  EXPECT_EQ(value_of(values, "adam_ratio"), 3.0);
  feed(a, {}, {}, {});
  EXPECT_TRUE(reduce_step({&a, &b}, 1).empty());
}

TEST(UpdateAccumulator, NanOnOneRankSpoilsTheRatiosOnly) {
  UpdateAccumulator a = all_of_them();
  UpdateAccumulator b = all_of_them();
  feed(a, {1, 1}, {kNan, 0x1p-30F}, {kNan, 1});
  feed(b, {1}, {1}, {1});
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_TRUE(std::isnan(value_of(values, "update_ratio").value()));
  EXPECT_TRUE(std::isnan(value_of(values, "adam_ratio").value()));
  EXPECT_EQ(value_of(values, "lost_updates%"), 50.0);
}

TEST(UpdateAccumulator, ZeroWeightsAndZeroUpdatesHaveNoShare) {
  UpdateAccumulator a = all_of_them();
  feed(a, {0, 0}, {1, 1}, {1, 1});
  EXPECT_THAT(names_of(reduce_step({&a}, 0)), ElementsAre("lost_updates%", "adam_ratio"));
  feed(a, {1, 1}, {0, 0}, {0, 0});
  const auto values = reduce_step({&a}, 1);
  EXPECT_THAT(names_of(values), ElementsAre("update_ratio", "adam_ratio"));
  EXPECT_EQ(value_of(values, "update_ratio"), 0.0);
}

TEST(UpdateAccumulator, WhatWasNotHandedInIsSaidOnce) {
  UpdateAccumulator a = all_of_them();
  UpdateAccumulator b = all_of_them();
  for (int step = 0; step < 2; ++step) {
    a.feed(row({1}), nullptr, nullptr);
    EXPECT_TRUE(reduce_step({&a, &b}, step).empty());
    const auto warnings = b.take_warnings();
    ASSERT_EQ(warnings.size(), step == 0 ? 2U : 0U) << "on every rank: whichever leads says it";
    if (step == 0) {
      EXPECT_THAT(warnings[0], HasSubstr("observe_update"));
    }
    if (step == 0) {
      EXPECT_THAT(warnings[1], HasSubstr("adam_ratio"));
    }
  }
}

TEST(UpdateAccumulator, UnknownNameIsRefused) { EXPECT_THROW(UpdateAccumulator({"update"}), Error); }

}  // namespace
}  // namespace amaxscope

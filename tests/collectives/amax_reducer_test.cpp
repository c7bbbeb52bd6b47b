#include "collectives/amax_reducer.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

class AmaxReduction : public BackendTest {};
class AmaxReductionTogether : public BackendTest {};

TEST_P(AmaxReduction, SixtyValuesACollective) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    AmaxReducer reducer(guard);
    std::uint64_t expected_calls = 0;
    for (const auto& [values, calls] : {std::pair{1, 1}, {60, 1}, {61, 2}, {200, 4}}) {
      // Value i is largest on rank i % size, where it is 1000 + i.
      std::vector<std::uint32_t> amaxes(static_cast<std::size_t>(values));
      for (int i = 0; i < values; ++i) {
        amaxes[static_cast<std::size_t>(i)] =
            static_cast<std::uint32_t>(i % world.size() == world.rank() ? 1000 + i : i);
      }
      reducer.reduce(amaxes, {.what = "amax"});
      std::vector<std::uint32_t> expected(amaxes.size());
      std::iota(expected.begin(), expected.end(), 1000U);
      if (world.size() > 1) expected_calls += static_cast<std::uint64_t>(calls);
      EXPECT_EQ(amaxes, expected) << values;
      EXPECT_EQ(world.counters().calls(Traffic::kDebug), expected_calls) << values;
      // Frames are always full: ranks with different calls must not see messages of different length.
      EXPECT_EQ(world.counters().bytes(Traffic::kDebug), expected_calls * 64 * 4);
    }
  });
}

TEST_P(AmaxReduction, TheTrafficIsTheCallers) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    AmaxReducer reducer(guard);
    EXPECT_EQ(&reducer.group(), &world);
    std::vector<std::uint32_t> amaxes(1);
    reducer.reduce(amaxes, {.traffic = Traffic::kRecipe, .what = "amax"});
    EXPECT_EQ(world.counters().calls(Traffic::kRecipe), world.size() == 1 ? 0U : 1U);
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 0U);
  });
}

TEST_P(AmaxReduction, WhatComesFirstComesOnce) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    int asked = 0;
    AmaxReducer reducer(guard, [&] {
      EXPECT_EQ(world.counters().calls(Traffic::kDebug), 0U) << "before anything is sent";
      ++asked;
    });
    EXPECT_EQ(asked, 0);
    std::vector<std::uint32_t> amaxes(1);
    reducer.reduce(amaxes, {.what = "amax"});
    reducer.reduce(amaxes, {.what = "amax"});
    EXPECT_EQ(asked, world.size() == 1 ? 0 : 1);
  });
}

TEST_P(AmaxReductionTogether, NothingIsReducedUntilWhatComesFirstSucceeds) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    int asked = 0;
    AmaxReducer reducer(guard, [&] {
      if (++asked < 3) throw Error(ErrorCode::kMismatch, "registrations differ");
    });
    std::vector<std::uint32_t> amaxes(1);
    EXPECT_THROW(reducer.reduce(amaxes, {.what = "amax"}), Error);
    EXPECT_THROW(reducer.reduce(amaxes, {.what = "amax"}), Error);
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 0U);
    reducer.reduce(amaxes, {.what = "amax"});
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 1U);
  });
}

TEST_P(AmaxReductionTogether, UnequalCountsAreFoundWhateverTheNumberOfFrames) {
  for (const auto& [one, other] : {std::pair{0, 1}, {60, 61}, {61, 200}}) {
    on_ranks([&, one = one, other = other](Communicator& world) {
      CollectiveGuard guard(world, {});
      AmaxReducer reducer(guard);
      std::vector<std::uint32_t> amaxes(static_cast<std::size_t>(world.rank() == 0 ? one : other));
      try {
        reducer.reduce(amaxes, {.what = "amax"});
        ADD_FAILURE() << one << " and " << other << " agreed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        EXPECT_THAT(error.what(),
                    ::testing::HasSubstr(fmt::format("rank 0: call 0: max amax {} x u32", one)));
      }
    });
  }
}

TEST_P(AmaxReduction, TensorsAreReducedInPlaceInOneCall) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    int asked = 0;
    AmaxReducer reducer(guard, [&] { ++asked; });
    const auto rank = static_cast<std::uint32_t>(world.rank());
    const auto last = static_cast<std::uint32_t>(world.size() - 1);
    Tensor one = Tensor::of<std::uint32_t>({rank}, {1});
    Tensor two = Tensor::of<std::uint32_t>({1000 - rank, 7}, {2});
    const std::vector<MutableTensorView> amaxes = {one, two};
    for (int call = 0; call < 2; ++call) reducer.reduce_tensors(amaxes, {.what = "amax"});
    EXPECT_THAT(one.values<std::uint32_t>(), ::testing::ElementsAre(last));
    EXPECT_THAT(two.values<std::uint32_t>(), ::testing::ElementsAre(1000U, 7U));
    const bool alone = world.size() == 1;
    EXPECT_EQ(asked, alone ? 0 : 1);
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), alone ? 0U : 2U);
    EXPECT_EQ(world.counters().bytes(Traffic::kDebug), alone ? 0U : 24U);
    Tensor floats(DType::kF32, {1});
    const std::vector<MutableTensorView> wrong = {floats};
    EXPECT_THROW(reducer.reduce_tensors(wrong, {.what = "amax"}), Error);
  });
}

TEST_P(AmaxReductionTogether, TensorsReducedAheadNeedNoFurtherCall) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    AmaxReducer reducer(guard);
    const auto rank = static_cast<std::uint32_t>(world.rank());
    const auto last = static_cast<std::uint32_t>(world.size() - 1);
    Tensor x = Tensor::of<float>({1, 2, 3}, {3});
    const Tensor empty(DType::kF32, {0, 4});
    const std::vector<AmaxReducer::Settled> settled = {
        {.layer = "fc1", .tensor = "weight", .x = x, .amax = 40 + rank},
        {.layer = "fc2", .tensor = "weight", .x = empty, .amax = 0}};
    reducer.reduce_ahead(settled, {.what = "weights"});
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 1U);

    EXPECT_EQ(reducer.known("fc1", "weight", x), std::optional(40 + last));
    EXPECT_EQ(reducer.known("fc2", "weight", empty), std::optional(0U));
    EXPECT_EQ(reducer.known("fc1", "activation", x), std::nullopt);
    std::vector<std::uint32_t> amaxes = {40 + rank, 0};  // 0: a direction that is not made
    reducer.reduce(amaxes, {.what = "amax", .layer = "fc1", .tensor = "weight"});
    EXPECT_THAT(amaxes, ::testing::ElementsAre(40 + last, 0U));
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 1U);

    std::vector<std::uint32_t> other = {41 + rank};
    EXPECT_THROW(reducer.reduce(other, {.what = "amax", .layer = "fc1", .tensor = "weight"}), Error);
    x.values<float>()[1] = 5;
    EXPECT_THROW(static_cast<void>(reducer.known("fc1", "weight", x)), Error);
    const Tensor copy = Tensor::of<float>({1, 2, 3}, {3});
    EXPECT_THROW(static_cast<void>(reducer.known("fc1", "weight", copy)), Error);

    reducer.forget();
    EXPECT_EQ(reducer.known("fc1", "weight", x), std::nullopt);
    reducer.reduce(amaxes, {.what = "amax", .layer = "fc1", .tensor = "weight"});
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 2U);
  });
}

TEST_P(AmaxReductionTogether, ABrokenGuardTakesNoTensors) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    CollectiveGuard guard(*group, {});
    AmaxReducer reducer(guard);
    std::vector<std::uint32_t> payload(CollectiveGuard::kFramePayload);
    EXPECT_THROW(guard.reduce_max(payload, 1, {.what = world.rank() == 0 ? "one" : "other"}), Error);
    Tensor amax(DType::kU32, {1});
    const std::vector<MutableTensorView> amaxes = {amax};
    try {
      reducer.reduce_tensors(amaxes, {.what = "amax"});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cannot go on"));
    }
    world.barrier(kTestTag);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, AmaxReduction, ::testing::ValuesIn(backends()), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AmaxReductionTogether);
INSTANTIATE_TEST_SUITE_P(Backends, AmaxReductionTogether, ::testing::ValuesIn(backends_with(has_others)),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing

#include "tests/runtime/session/event_scenes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/session/live_scene.hpp"

namespace amaxscope::testing {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

namespace {

ParallelSizes all_tensor_parallel(const Communicator& world) { return {.tp = world.size()}; }

/// Debug collectives of this rank in each of the iterations up to `end`.
std::vector<std::uint64_t> calls_by_step(LiveRank& rank, const LayerHandle& layer, std::int64_t end) {
  std::vector<std::uint64_t> calls;
  while (rank.session().iteration() < end) {
    const std::uint64_t before = rank.debug_calls();
    LiveRank::feed(layer, 1);
    rank.session().step();
    calls.push_back(rank.debug_calls() - before);
  }
  return calls;
}

}  // namespace

void scene_idle_sessions_do_not_poll(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), with_config(section("all", "Alarm", "action: log")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});  // registrations are compared
  EXPECT_THAT(calls_by_step(rank, layer, 5), ElementsAre(0, 0, 0, 0));
  rank.session().close();
}

void scene_one_poll_in_every_poll_every(Communicator& world) {
  const std::uint64_t one = world.size() == 1 ? 0 : 1;
  LiveRank each(world, all_tensor_parallel(world), with_config(section("all", "Alarm", "action: record")));
  const LayerHandle layer = each.add_layer("fc1");
  each.run_to(1, {layer});
  EXPECT_THAT(calls_by_step(each, layer, 5), ElementsAre(one, one, one, one));

  SessionOptions options = with_config(section("all", "Alarm", "action: record"));
  options.poll_every = 3;
  LiveRank third(world, all_tensor_parallel(world), std::move(options));
  const LayerHandle other = third.add_layer("fc1");
  third.run_to(1, {other});
  EXPECT_THAT(calls_by_step(third, other, 8), ElementsAre(0, 0, one, 0, 0, one, 0));
}

void scene_an_event_costs_one_more_collective(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), with_config(section("all", "Alarm", "action: record")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(3, {layer});
  const std::uint64_t before = rank.debug_calls();
  LiveRank::feed(layer, rank.rank() == 0 ? 99.0F : 1.0F);
  rank.session().step();
  EXPECT_EQ(rank.debug_calls() - before, world.size() == 1 ? 0U : 2U);
  const std::uint64_t after = rank.debug_calls();
  rank.run_to(5, {layer});
  EXPECT_EQ(rank.debug_calls() - after, world.size() == 1 ? 0U : 1U) << "said once";
}

void scene_an_event_of_one_rank_is_everybodys(Communicator& world) {
  const int last = world.size() - 1;
  LiveRank rank(world, all_tensor_parallel(world), with_config(section("all", "Alarm", "action: record")));
  const LayerHandle first = rank.add_layer("fc1");
  const LayerHandle second = rank.add_layer("fc2");
  rank.run_to(4, {first, second});
  LiveRank::feed(first, rank.rank() == last ? 99.0F : 1.0F);
  LiveRank::feed(second, 99);
  rank.session().step();
  rank.run_to(6, {first, second});
  if (rank.rank() != 0) {
    EXPECT_THAT(rank.events, IsEmpty()) << "rank 0 writes them";
    return;
  }
  ASSERT_THAT(rank.events, SizeIs(2));
  std::vector<int> everyone;
  for (int i = 0; i < world.size(); ++i) everyone.push_back(i);
  for (const auto& [iteration, event] : rank.events) {
    EXPECT_EQ(iteration, 4);
    EXPECT_EQ(event.iteration, 4);
    EXPECT_EQ(event.kind, "trigger");
    EXPECT_THAT(event.feature, HasSubstr("Alarm of section all"));
    EXPECT_EQ(event.check, "alarm");
    EXPECT_EQ(event.tensor, "activation");
    EXPECT_EQ(event.what, "begins with 99");
    EXPECT_EQ(event.ranks, event.layer == "fc1" ? std::vector{last} : everyone);
  }
  EXPECT_NE(rank.events[0].second.layer, rank.events[1].second.layer);
}

void scene_a_stop_reaches_the_other_stage(Communicator& world) {
  LiveRank rank(world, {.tp = world.size() / 2, .pp = 2},
                with_config(section("all", "NonFiniteGuard", "action: stop")));
  const LayerHandle layer = rank.add_layer(rank.stage() == 0 ? "first" : "second");
  rank.run_to(3, {layer});
  const int culprit = world.size() - 1;  // of the second stage
  LiveRank::feed(layer, rank.rank() == culprit ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
  std::string message = "went on";
  try {
    rank.session().step();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kStopped);
    message = error.what();
  }
  EXPECT_EQ(
      message,
      "NonFiniteGuard of section all (line 1): first non-finite at iteration 3, activation of second, rank " +
          std::to_string(culprit) + ": the first NaN is element 0, 1 element is not finite");
}

}  // namespace amaxscope::testing

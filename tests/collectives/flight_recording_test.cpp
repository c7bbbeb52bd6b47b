// Communicators write down what they do, on every backend.
#include <gmock/gmock.h>

#include "collectives/flight_recorder.hpp"
#include "collectives/process_groups.hpp"
#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;

class FlightRecording : public BackendTest {};

TEST_P(FlightRecording, EveryOperationByNameInItsOrder) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    const auto recorder = FlightRecorder::in_memory(world.rank(), n, {});
    world.record_into(recorder, "world");
    const CollectiveTag tag = {Traffic::kTrainer, "part", "fc1", "weight"};
    Tensor one(DType::kF32, {2});
    Tensor all(DType::kF32, {n, 2});
    world.all_reduce(one, ReduceOp::kMax, tag);
    world.all_gather(one, all, tag);
    world.reduce_scatter(all, one, ReduceOp::kSum, tag);
    world.broadcast(one, n - 1, tag);
    world.barrier({.traffic = Traffic::kTrainer, .what = "end"});
    const auto half = world.split(world.rank() % 2, 0, {.traffic = Traffic::kTrainer, .what = "half"});
    half->barrier({.what = "of half"});
    world.record_into(nullptr, "");
    world.barrier(kTestTag);  // no longer recorded

    const FlightRecord record = recorder->record();
    std::vector<std::string> calls;
    for (const FlightCall& call : record.calls) {
      calls.push_back(record.status.groups[call.group].name + ": " + describe(call));
      EXPECT_EQ(call.outcome, FlightOutcome::kCompleted);
      EXPECT_GE(call.end.value(), call.begin);
    }
    EXPECT_THAT(
        calls,
        ElementsAre("world: max part 2 x f32, fc1 weight, iteration -1",
                    "world: all_gather part 2 x f32, fc1 weight, iteration -1",
                    fmt::format("world: reduce_scatter sum part {} x f32, fc1 weight, iteration -1", 2 * n),
                    fmt::format("world: broadcast from rank {} part 2 x f32, fc1 weight, "
                                "iteration -1",
                                n - 1),
                    "world: barrier end, iteration -1", "world: split half, iteration -1",
                    "half: barrier of half, iteration -1"));
    EXPECT_EQ(record.status.groups[0].calls, 6U);
    EXPECT_EQ(record.status.groups[1].calls, 1U);
    EXPECT_EQ(record.status.groups[1].world_ranks, half->world_ranks());
    EXPECT_FALSE(record.status.inside);
  });
}

TEST_P(FlightRecording, ARefusedCallIsNotOneOfTheGroup) {
  on_ranks([&](Communicator& world) {
    const auto recorder = FlightRecorder::in_memory(world.rank(), world.size(), {});
    world.record_into(recorder, "world");
    Tensor io(DType::kU8, {1});
    EXPECT_THROW(world.all_reduce(io, ReduceOp::kMax, kTestTag), Error);
    EXPECT_TRUE(recorder->record().calls.empty());
    world.record_into(nullptr, "");
  });
}

TEST_P(FlightRecording, ProcessGroupsAreCalledByTheirAxes) {
  on_ranks([&](Communicator& world) {
    const auto recorder = FlightRecorder::in_memory(world.rank(), world.size(), {});
    world.record_into(recorder, "world");
    {
      const ProcessGroups groups(world, {.tp = world.size()});
      groups.dp().barrier(kTestTag);
    }
    const FlightRecord record = recorder->record();
    EXPECT_EQ(record.status.groups[record.calls.back().group].name, "dp");
    EXPECT_THAT(record.status.groups[record.calls.back().group].world_ranks, ElementsAre(world.rank()));
    world.record_into(nullptr, "");
  });
}

class FlightOfMessages : public BackendTest {};

TEST_P(FlightOfMessages, SendsAndReceivesAreBetweenTwo) {
  on_ranks([&](Communicator& world) {
    const auto recorder = FlightRecorder::in_memory(world.rank(), world.size(), {});
    world.record_into(recorder, "world");
    Tensor io(DType::kF32, {3});
    if (world.rank() == 0) world.send(io, 1, {.traffic = Traffic::kTrainer, .what = "activations"});
    if (world.rank() == 1) world.receive(io, 0, {.traffic = Traffic::kTrainer, .what = "activations"});
    world.record_into(nullptr, "");
    const FlightRecord record = recorder->record();
    EXPECT_EQ(record.status.groups[0].calls, 0U) << "the group as a whole has done nothing";
    if (world.rank() > 1) return;
    ASSERT_EQ(record.calls.size(), 1U);
    EXPECT_EQ(describe(record.calls[0]), world.rank() == 0
                                             ? "send to rank 1 activations 3 x f32, iteration -1"
                                             : "receive from rank 0 activations 3 x f32, iteration -1");
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, FlightRecording, ::testing::ValuesIn(backends()), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FlightOfMessages);
INSTANTIATE_TEST_SUITE_P(Backends, FlightOfMessages, ::testing::ValuesIn(backends_with(has_others)),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing

// send and receive on every backend.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class PointToPoint : public BackendTest {};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PointToPoint);

TEST_P(PointToPoint, BytesOfAnyTypeArriveAsTheyWere) {
  on_ranks([&](Communicator& world) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kU8,
                              DType::kE4M3, DType::kE8M0, DType::kE2M1}) {
      Tensor sent(dtype, {3, 6});
      auto* const bytes = static_cast<unsigned char*>(sent.mutable_view().data());
      std::iota(bytes, bytes + sent.bytes(), static_cast<unsigned char>(3));
      Tensor received(dtype, {3, 6});
      if (world.rank() == 0) world.send(sent, world.size() - 1, kTestTag);
      if (world.rank() == world.size() - 1) {
        world.receive(received, 0, kTestTag);
        EXPECT_EQ(std::memcmp(received.view().data(), bytes, sent.bytes()), 0) << to_string(dtype);
      }
    }
  });
}

TEST_P(PointToPoint, MessagesOfAPairKeepTheirOrder) {
  on_ranks([&](Communicator& world) {
    // Everybody sends to rank 0, which takes the ranks' messages in turn, the last rank's first.
    constexpr int kMessages = 20;
    for (int i = 0; world.rank() != 0 && i < kMessages; ++i) {
      world.send(Tensor::of<std::int32_t>({100 * world.rank() + i}, {1}).view(), 0, kTestTag);
    }
    for (int i = 0; world.rank() == 0 && i < kMessages; ++i) {
      for (int from = world.size() - 1; from > 0; --from) {
        Tensor io(DType::kI32, {1});
        world.receive(io, from, kTestTag);
        EXPECT_EQ(io.values<std::int32_t>()[0], 100 * from + i);
      }
    }
  });
}

TEST_P(PointToPoint, LargeMessagesThereAndBack) {
  // Larger than any buffer of a transport: a send may wait for its receive. Ranks pass it up and down the
  // line.
  constexpr std::int64_t kCount = std::int64_t{1} << 20;
  on_ranks([&](Communicator& world) {
    Tensor io(DType::kI32, {kCount});
    const std::span<std::int32_t> values = io.values<std::int32_t>();
    const bool last = world.rank() == world.size() - 1;
    if (world.rank() > 0) world.receive(io, world.rank() - 1, kTestTag);
    for (std::int32_t& value : values) ++value;
    if (!last) {
      world.send(io, world.rank() + 1, kTestTag);
      world.receive(io, world.rank() + 1, kTestTag);
    }
    EXPECT_THAT(std::vector<std::int32_t>(values.begin(), values.begin() + 5), Each(world.size()));
    EXPECT_EQ(values.back(), world.size());
    if (world.rank() > 0) world.send(io, world.rank() - 1, kTestTag);
  });
}

TEST_P(PointToPoint, GroupsAndCollectivesDoNotMeet) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(0, -world.rank(), kTestTag);  // in reverse order
    const int last = world.size() - 1;
    // A message of the group, one of the world and a collective between, to the same rank.
    if (world.rank() == last) {
      group->send(Tensor::of<float>({1.0F}, {1}).view(), last, kTestTag);
      world.send(Tensor::of<float>({2.0F}, {1}).view(), 0, kTestTag);
    }
    if (world.rank() == 0) {
      Tensor io(DType::kF32, {1});
      EXPECT_EQ(group->world_ranks()[0], last);
      group->receive(io, 0, kTestTag);
      EXPECT_EQ(io.values<float>()[0], 1.0F);
      world.receive(io, last, kTestTag);
      EXPECT_EQ(io.values<float>()[0], 2.0F);
    }
    world.barrier(kTestTag);
  });
}

TEST_P(PointToPoint, NothingIsAMessageToo) {
  on_ranks([&](Communicator& world) {
    Tensor nothing(DType::kF32, {0, 4});
    if (world.rank() == 0) world.send(nothing, 1, kTestTag);
    if (world.rank() == 1) world.receive(nothing, 0, kTestTag);
  });
}

TEST_P(PointToPoint, BothSidesCountACallAndTheSenderTheBytes) {
  on_ranks([&](Communicator& world) {
    const CollectiveTag recipe = {.traffic = Traffic::kRecipe, .what = "counted"};
    Tensor four(DType::kF32, {4});
    const auto group = world.split(0, world.rank(), kTestTag);
    if (world.rank() == 0) group->send(four, 1, recipe);
    if (world.rank() == 1) group->receive(four, 0, recipe);
    EXPECT_EQ(world.counters().calls(Traffic::kRecipe), world.rank() < 2 ? 1U : 0U);
    EXPECT_EQ(world.counters().bytes(Traffic::kRecipe), world.rank() == 0 ? 16U : 0U);
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, PointToPoint, ::testing::ValuesIn(backends_with(has_others)),
                         backend_name);

class PointToPointChecks : public BackendTest {};

TEST_P(PointToPointChecks, WrongCallsAreRefusedBeforeAnythingIsSent) {
  on_ranks([&](Communicator& world) {
    const auto text_of = [](ErrorCode code, auto f) -> std::string {
      try {
        f();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        return error.what();
      }
      return "nothing was thrown";
    };
    const CollectiveTag tag = {.traffic = Traffic::kTrainer, .what = "activation"};
    Tensor io(DType::kF32, {4});
    for (const int other : {world.rank(), -1, world.size()}) {
      EXPECT_THAT(text_of(ErrorCode::kUsage, [&] { world.send(io, other, tag); }),
                  AllOf(HasSubstr("send of activation"), HasSubstr(fmt::format("to rank {}", other))));
      EXPECT_THAT(text_of(ErrorCode::kUsage, [&] { world.receive(io, other, tag); }),
                  AllOf(HasSubstr("receive of activation"), HasSubstr(fmt::format("from rank {}", other))));
    }
    float memory[4] = {};
    const MutableTensorView device(memory, DType::kF32, {4}, {DeviceKind::kCuda, 1});
    EXPECT_THAT(text_of(ErrorCode::kTensor, [&] { world.send(device, 0, tag); }), HasSubstr("cuda:1"));
    EXPECT_THAT(text_of(ErrorCode::kTensor, [&] { world.receive(device, 0, tag); }), HasSubstr("cuda:1"));
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, PointToPointChecks, ::testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace amaxscope::testing

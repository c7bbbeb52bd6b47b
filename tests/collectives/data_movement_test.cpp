// all_gather, broadcast, barrier, split, the counters and the checks on every backend.
#include <gmock/gmock.h>

#include <thread>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataMovement : public BackendTest {};

TEST_P(DataMovement, AGroupKnowsItsRanks) {
  on_ranks([&](Communicator& world) {
    EXPECT_EQ(world.size(), ranks());
    EXPECT_EQ(world.world_ranks().size(), static_cast<std::size_t>(ranks()));
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(world.world_ranks()[static_cast<std::size_t>(rank)], rank);
    }
    EXPECT_GE(world.rank(), 0);
    EXPECT_LT(world.rank(), world.size());
  });
}

TEST_P(DataMovement, GatherKeepsTheOrderOfTheRanks) {
  on_ranks([&](Communicator& world) {
    const auto rank = static_cast<std::uint8_t>(world.rank());
    for (const DType dtype : {DType::kU8, DType::kE4M3, DType::kE5M2, DType::kE8M0}) {
      Tensor in(dtype, {3});  // an odd number of bytes
      for (std::size_t i = 0; i < 3; ++i)
        in.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(10 * rank + i);
      Tensor out(dtype, {world.size(), 3});
      world.all_gather(in, out, kTestTag);
      for (std::size_t i = 0; i < out.values<std::uint8_t>().size(); ++i) {
        EXPECT_EQ(out.values<std::uint8_t>()[i], 10 * (i / 3) + i % 3);
      }
    }
    const Tensor row = Tensor::of<double>({0.5 + world.rank(), -1.0}, {1, 2});
    Tensor rows(DType::kF64, {world.size(), 2});
    world.all_gather(row, rows, kTestTag);
    for (int r = 0; r < world.size(); ++r) {
      EXPECT_EQ(rows.values<double>()[static_cast<std::size_t>(2 * r)], 0.5 + r);
      EXPECT_EQ(rows.values<double>()[static_cast<std::size_t>(2 * r + 1)], -1.0);
    }
  });
}

TEST_P(DataMovement, FourBitCodesTravelAsBytes) {
  on_ranks([&](Communicator& world) {
    Tensor in(DType::kE2M1, {4});
    auto* codes = static_cast<unsigned char*>(in.mutable_view().data());
    codes[0] = 0x21;
    codes[1] = static_cast<unsigned char>(world.rank());
    Tensor out(DType::kE2M1, {world.size(), 4});
    world.all_gather(in, out, kTestTag);
    const auto* all = static_cast<const unsigned char*>(out.view().data());
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(all[2 * rank], 0x21);
      EXPECT_EQ(all[2 * rank + 1], rank);
    }
    // Three codes fill one byte and a half: two ranks' do not follow each other on byte boundaries.
    if (world.size() > 1) {
      Tensor odd(DType::kE2M1, {world.size(), 3});
      EXPECT_THROW(world.all_gather(Tensor(DType::kE2M1, {3}).view(), odd, kTestTag), Error);
    }
  });
}

TEST_P(DataMovement, BroadcastOfOddBytesFromEachRoot) {
  on_ranks([&](Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      Tensor io(DType::kU8, {7});
      for (std::uint8_t& byte : io.values<std::uint8_t>())
        byte = static_cast<std::uint8_t>(100 + world.rank());
      world.broadcast(io, root, kTestTag);
      EXPECT_THAT(io.values<std::uint8_t>(), ::testing::Each(100 + root));
    }
  });
}

TEST_P(DataMovement, NothingToMoveIsLegal) {
  on_ranks([&](Communicator& world) {
    Tensor nothing(DType::kF32, {0, 4});
    Tensor all(DType::kF32, {0, 4});
    world.all_gather(nothing, all, kTestTag);
    world.broadcast(nothing, /*root=*/0, kTestTag);
    world.barrier(kTestTag);
  });
}

TEST_P(DataMovement, SplitByColorOrderedByKey) {
  on_ranks([&](Communicator& world) {
    // Even and odd ranks, each in descending order.
    const auto group = world.split(world.rank() % 2, -world.rank(), kTestTag);
    ASSERT_NE(group, nullptr);
    std::vector<int> members;
    for (int rank = world.size() - 1; rank >= 0; --rank) {
      if (rank % 2 == world.rank() % 2) members.push_back(rank);
    }
    EXPECT_EQ(group->world_ranks(), members);
    EXPECT_EQ(group->world_ranks()[static_cast<std::size_t>(group->rank())], world.rank());
    EXPECT_EQ(group->size(), static_cast<int>(members.size()));

    // The groups do not wait for each other: the odd ones do more.
    for (int i = 0; i < 1 + 3 * (world.rank() % 2); ++i) {
      Tensor io = Tensor::of<std::int32_t>({world.rank()}, {1});
      group->all_reduce(io, ReduceOp::kMax, kTestTag);
      EXPECT_EQ(io.values<std::int32_t>()[0], members.front());
    }
    // And a group of a group knows the ranks of the world.
    const auto alone = group->split(group->rank(), 0, kTestTag);
    EXPECT_THAT(alone->world_ranks(), ElementsAre(world.rank()));
  });
}

TEST_P(DataMovement, EqualKeysKeepTheOrder) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(5, 0, kTestTag);
    EXPECT_EQ(group->world_ranks(), world.world_ranks());
    EXPECT_EQ(group->rank(), world.rank());
  });
}

TEST_P(DataMovement, ANegativeColorTakesPartAndGetsNothing) {
  on_ranks([&](Communicator& world) {
    const bool out = world.rank() == 0;
    const auto group = world.split(out ? -1 : 0, world.rank(), kTestTag);
    EXPECT_EQ(group == nullptr, out);
    if (group != nullptr) {
      EXPECT_EQ(group->size(), world.size() - 1);
      group->barrier(kTestTag);
    }
    world.barrier(kTestTag);
  });
}

TEST_P(DataMovement, EveryCallIsCountedWithItsPayload) {
  on_ranks([&](Communicator& world) {
    const TrafficCounters& counters = world.counters();
    Tensor four = Tensor::of<float>({1, 2, 3, 4}, {4});  // 16 bytes
    Tensor gathered(DType::kF32, {world.size(), 4});
    const Tensor wide(DType::kF32, {world.size(), 2});  // 8 bytes a rank
    Tensor slice(DType::kF32, {1, 2});
    const CollectiveTag debug = {.traffic = Traffic::kDebug, .what = "counted"};
    const CollectiveTag recipe = {.traffic = Traffic::kRecipe, .what = "counted"};

    world.all_reduce(four, ReduceOp::kMax, debug);
    world.all_gather(four, gathered, debug);
    world.broadcast(four, /*root=*/0, recipe);
    world.reduce_scatter(wide, slice, ReduceOp::kMax, recipe);
    world.barrier(kTestTag);
    const auto group = world.split(0, world.rank(), kTestTag);
    group->all_reduce(four, ReduceOp::kMax, kTestTag);
    const auto pending =
        group->start_all_reduce(std::make_shared<Tensor>(DType::kF64, Shape{3}), ReduceOp::kSum, debug);
    while (!pending->test()) std::this_thread::yield();

    EXPECT_EQ(counters.calls(Traffic::kDebug), 3U);
    EXPECT_EQ(counters.bytes(Traffic::kDebug), 16U + 16U + 24U);
    EXPECT_EQ(counters.calls(Traffic::kRecipe), 2U);
    EXPECT_EQ(counters.bytes(Traffic::kRecipe), 16U + 8U * static_cast<unsigned>(world.size()));
    EXPECT_EQ(counters.calls(Traffic::kTrainer), 2U) << "the barrier and the group's, not the split";
    EXPECT_EQ(counters.bytes(Traffic::kTrainer), 16U);
    EXPECT_EQ(&group->counters(), &counters);
  });
}

/// Runs what must be refused and returns its message.
template <class F>
std::string refusal(ErrorCode code, F f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST_P(DataMovement, WrongCallsAreRefusedBeforeAnythingIsSent) {
  on_ranks([&](Communicator& world) {
    const int n = world.size();
    float memory[8] = {};
    const MutableTensorView device(memory, DType::kF32, {4}, {DeviceKind::kCuda, 1});
    const CollectiveTag tag = {.traffic = Traffic::kTrainer, .what = "amax of fc1"};
    const auto tensor_error = [&](auto f) { return refusal(ErrorCode::kTensor, f); };

    EXPECT_THAT(tensor_error([&] { world.all_reduce(device, ReduceOp::kSum, tag); }),
                ::testing::AllOf(HasSubstr("all_reduce"), HasSubstr("amax of fc1"), HasSubstr("cuda:1")));
    EXPECT_THAT(tensor_error([&] { world.broadcast(device, 0, tag); }), HasSubstr("cuda:1"));
    EXPECT_THAT(tensor_error([&] { world.all_gather(device, device, tag); }), HasSubstr("cuda:1"));
    EXPECT_THAT(tensor_error([&] { world.reduce_scatter(device, device, ReduceOp::kSum, tag); }),
                HasSubstr("cuda:1"));
    EXPECT_THAT(tensor_error([&] {
                  world.all_gather(TensorView(memory, DType::kF32, {1}, {}, Stream{memory}),
                                   MutableTensorView(memory + 1, DType::kF32, {n}), tag);
                }),
                HasSubstr("one device and stream"));
    const TensorView strided(memory, DType::kF32, {2, 2}, {}, {}, 4);
    Tensor out(DType::kF32, {2 * n, 2});
    EXPECT_THAT(tensor_error([&] { world.all_gather(strided, out, tag); }), HasSubstr("row stride 4"));

    Tensor codes(DType::kE4M3, {4 * n});
    EXPECT_THAT(tensor_error([&] { world.all_reduce(codes, ReduceOp::kMax, tag); }),
                HasSubstr("allowed: f64"));
    EXPECT_THAT(tensor_error([&] {
                  world.start_all_reduce(std::make_shared<Tensor>(DType::kU8, Shape{1}), ReduceOp::kMax, tag);
                }),
                HasSubstr("allowed: f64"));
    EXPECT_THAT(tensor_error([&] { world.start_all_reduce(nullptr, ReduceOp::kMax, tag); }),
                HasSubstr("no tensor"));

    Tensor in(DType::kF32, {3});
    Tensor short_one(DType::kF32, {3 * n + 1});
    EXPECT_THAT(tensor_error([&] { world.all_gather(in, short_one, tag); }), HasSubstr("do not fill"));
    Tensor other_type(DType::kI32, {3 * n});
    EXPECT_THAT(tensor_error([&] { world.all_gather(in, other_type, tag); }), HasSubstr("i32"));
    EXPECT_THAT(tensor_error([&] {
                  world.all_gather(TensorView(memory, DType::kF32, {1}),
                                   MutableTensorView(memory, DType::kF32, {n}), tag);
                }),
                HasSubstr("share memory"));
    Tensor slice(DType::kF32, {1, 2});
    EXPECT_THAT(tensor_error([&] {
                  world.reduce_scatter(Tensor(DType::kF32, {n + 1, 2}).view(), slice, ReduceOp::kSum, tag);
                }),
                HasSubstr("does not split"));
    if (n > 1) {  // as many elements as the slices hold, but not along the first dimension
      Tensor half(DType::kF32, {n + 1, 1});
      EXPECT_THAT(tensor_error([&] {
                    world.reduce_scatter(Tensor(DType::kF32, {n + 1, n}).view(), half, ReduceOp::kSum, tag);
                  }),
                  HasSubstr("does not split"));
    }
    EXPECT_THAT(refusal(ErrorCode::kUsage, [&] { world.broadcast(in, n, tag); }),
                HasSubstr(fmt::format("root {}", n)));
    EXPECT_THAT(refusal(ErrorCode::kUsage, [&] { world.broadcast(in, -1, tag); }), HasSubstr("root -1"));

    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 0U);
    world.barrier(kTestTag);
  });
}

TEST_P(DataMovement, TextsOfAllRanks) {
  on_ranks([&](Communicator& world) {
    // "", "1", "22", "333": of different lengths, one empty; and a zero byte inside.
    const auto text_of = [](int rank) {
      return std::string(static_cast<std::size_t>(rank), static_cast<char>('0' + rank));
    };
    const std::vector<std::string> all = all_gather_text(world, text_of(world.rank()), kTestTag);
    EXPECT_EQ(all.size(), static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank)
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], text_of(rank));
    EXPECT_THAT(all_gather_text(world, "", kTestTag), ::testing::Each(""));

    const std::string binary("a\0b", 3);
    const int root = world.size() - 1;
    EXPECT_EQ(broadcast_text(world, world.rank() == root ? binary : "mine", root, kTestTag), binary);
    EXPECT_EQ(broadcast_text(world, "", 0, kTestTag), "");
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 8U) << "two each";
  });
}

TEST_P(DataMovement, AgreementNeedsEveryRank) {
  on_ranks([&](Communicator& world) {
    EXPECT_TRUE(all_agree(world, true, kTestTag));
    EXPECT_FALSE(all_agree(world, false, kTestTag));
    EXPECT_EQ(all_agree(world, world.rank() == 0, kTestTag), world.size() == 1);
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), 3U);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, DataMovement, ::testing::ValuesIn(backends()), backend_name);

TEST(RankList, RunsAreShortened) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({1, 0}), "ranks 0, 1");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8, 9}), "ranks 0-2, 5, 7-9");
}

}  // namespace
}  // namespace amaxscope::testing

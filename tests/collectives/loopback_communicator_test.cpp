// What threads as ranks do beyond a communicator's contract: they turn hangs and mixed-up calls into errors.
#include "collectives/loopback_communicator.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "collectives/callback_communicator.hpp"
#include "core/error.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/support/faulty_communicator.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string error_text(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

TEST(Loopback, AFailingRankReleasesTheOthers) {
  std::atomic<int> released{0};
  const std::string text = error_text([&] {
    run_loopback_ranks(4, [&](Communicator& world) {
      if (world.rank() == 2) throw std::runtime_error("rank two broke");
      const std::string own = error_text([&] { world.barrier(kTestTag); });
      EXPECT_EQ(own, "another rank has failed: rank two broke");
      ++released;
      // So does everything it tries later.
      EXPECT_THROW(world.barrier(kTestTag), Error);
      throw Error(ErrorCode::kInternal, own);
    });
  });
  EXPECT_EQ(text, "rank two broke") << "the first error, not one that followed from it";
  EXPECT_EQ(released, 3);
}

TEST(Loopback, AFailingRankReleasesWhoPollsInAnotherGroup) {
  const std::string text = error_text([] {
    run_loopback_ranks(3, [](Communicator& world) {
      // Ranks 0 and 1 wait for each other's second call, which rank 1 does not make.
      const auto group = world.split(world.rank() / 2, 0, kTestTag);
      if (world.rank() == 2) throw std::runtime_error("broke");
      const auto pending =
          group->start_all_reduce(std::make_shared<Tensor>(DType::kF32, Shape{1}), ReduceOp::kSum, kTestTag);
      while (!pending->test()) std::this_thread::yield();
      if (world.rank() == 0) group->barrier(kTestTag);
      world.barrier(kTestTag);  // rank 1 is still there when rank 2 fails
    });
  });
  EXPECT_EQ(text, "broke");
}

TEST(Loopback, ACollectiveThatIsCompleteIsNotSpoiledByALaterFailure) {
  EXPECT_THROW(run_loopback_ranks(2,
                                  [](Communicator& world) {
                                    const auto io = std::make_shared<Tensor>(Tensor::of<float>({1.0F}, {1}));
                                    const auto pending = world.start_all_reduce(io, ReduceOp::kSum, kTestTag);
                                    world.barrier(kTestTag);
                                    if (world.rank() == 1) throw std::runtime_error("broke");
                                    EXPECT_TRUE(pending->test());
                                    EXPECT_EQ(io->values<float>()[0], 2.0F);
                                  }),
               std::runtime_error);
}

TEST(Loopback, AbortReachesEveryRank) {
  std::atomic<int> thrown{0};
  const std::string text = error_text([&] {
    run_loopback_ranks(3, [&](Communicator& world) {
      try {
        if (world.rank() == 1) world.abort(71, "scales differ");
        world.barrier(kTestTag);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInternal);
        ++thrown;
        throw;
      }
    });
  });
  EXPECT_EQ(text, "rank 1 aborted with status 71: scales differ");
  EXPECT_EQ(thrown, 3);
}

TEST(Loopback, ARankThatHasReturnedIsNotWaitedFor) {
  const std::string text = error_text([] {
    run_loopback_ranks(3, [](Communicator& world) {
      if (world.rank() != 1) world.barrier(kTestTag);
    });
  });
  EXPECT_EQ(text, "barrier: rank 1 has ended and will never come");
}

TEST(Loopback, ARankOutsideTheGroupMayReturnEarly) {
  run_loopback_ranks(3, [](Communicator& world) {
    const auto group = world.split(world.rank() == 0 ? -1 : 0, 0, kTestTag);
    if (world.rank() == 0) return;
    for (int i = 0; i < 50; ++i) group->barrier(kTestTag);
  });
}

TEST(Loopback, DifferentCallsAreAnErrorThatNamesBoth) {
  const std::string kinds = error_text([] {
    run_loopback_ranks(2, [](Communicator& world) {
      Tensor io(DType::kU32, {4});
      if (world.rank() == 0) world.broadcast(io, /*root=*/1, kTestTag);
      if (world.rank() == 1) world.all_reduce(io, ReduceOp::kMax, kTestTag);
    });
  });
  EXPECT_THAT(kinds, AllOf(HasSubstr("rank 0 in broadcast of 16 bytes from rank 1"),
                           HasSubstr("rank 1 in all_reduce max of 16 bytes u32")));
  const std::string counts = error_text([] {
    run_loopback_ranks(2, [](Communicator& world) {
      Tensor io(DType::kF32, {world.rank() + 1});
      world.all_reduce(io, ReduceOp::kSum, kTestTag);
    });
  });
  EXPECT_THAT(counts, AllOf(HasSubstr("rank 0 in all_reduce sum of 4 bytes"),
                            HasSubstr("rank 1 in all_reduce sum of 8 bytes")));
  const std::string operations = error_text([] {
    run_loopback_ranks(2, [](Communicator& world) {
      Tensor io(DType::kF32, {1});
      world.all_reduce(io, world.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax, kTestTag);
    });
  });
  EXPECT_THAT(operations, AllOf(HasSubstr("all_reduce sum"), HasSubstr("all_reduce max")));
}

TEST(Loopback, MessagesThatCannotArriveAreErrors) {
  const auto two = [](auto body) { return error_text([&] { run_loopback_ranks(2, body); }); };
  EXPECT_EQ(two([](Communicator& world) {
              Tensor io(DType::kU8, {world.rank() == 0 ? 8 : 4});
              if (world.rank() == 0) world.send(io, 1, kTestTag);
              if (world.rank() == 1) world.receive(io, 0, kTestTag);
            }),
            "rank 0 sends 8 bytes and rank 1 receives 4");
  EXPECT_THAT(two([](Communicator& world) {
                const Tensor io(DType::kU8, {8});
                world.send(io, 1 - world.rank(), kTestTag);
              }),
              HasSubstr("both send to each other"));
  EXPECT_EQ(two([](Communicator& world) {
              const Tensor io(DType::kU8, {8});
              if (world.rank() == 0) world.send(io, 1, kTestTag);
            }),
            "send of 8 bytes: rank 1 has ended and will never come");
  EXPECT_EQ(two([](Communicator& world) {
              Tensor io(DType::kU8, {8});
              if (world.rank() == 0) world.receive(io, 1, kTestTag);
            }),
            "receive of 8 bytes: rank 1 has ended and will never come");
}

TEST(Loopback, AFailingRankReleasesWhoSendsAndWhoReceives) {
  std::atomic<int> released{0};
  EXPECT_EQ(error_text([&] {
              run_loopback_ranks(4, [&](Communicator& world) {
                Tensor io(DType::kU8, {8});
                if (world.rank() == 0) world.barrier(kTestTag);
                if (world.rank() == 3) throw std::runtime_error("rank three broke");
                const std::string own = error_text([&] {
                  if (world.rank() == 1) world.send(io, 0, kTestTag);
                  if (world.rank() == 2) world.receive(io, 0, kTestTag);
                });
                EXPECT_EQ(own, "another rank has failed: rank three broke");
                ++released;
              });
            }),
            "rank three broke");
  EXPECT_EQ(released, 2) << "rank 0 leaves at the barrier";
}

TEST(Loopback, SumsAreInTheOrderOfTheRanks) {
  for (int round = 0; round < 20; ++round) {
    run_loopback_ranks(4, [&](Communicator& world) {
      // ((2^53 + 1) - 2^53) + 1 is 1 in fp64; other orders give 0 or 2. A different rank is late in each
      // round.
      const double values[] = {0x1p53, 1.0, -0x1p53, 1.0};
      if (world.rank() == round % 4) std::this_thread::sleep_for(std::chrono::microseconds(200));
      Tensor io = Tensor::of<double>({values[world.rank()]}, {1});
      world.all_reduce(io, ReduceOp::kSum, kTestTag);
      EXPECT_EQ(io.values<double>()[0], 1.0);
    });
  }
}

TEST(Loopback, AnAbandonedCollectiveCompletesForTheOthers) {
  run_loopback_ranks(2, [](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
    auto pending = group->start_all_reduce(io, ReduceOp::kSum, kTestTag);
    world.barrier(kTestTag);
    if (world.rank() == 0) {
      pending.reset();
      EXPECT_EQ(io->values<std::uint32_t>()[0], 3U) << "never written";
    }
    world.barrier(kTestTag);
    if (world.rank() == 1) {
      EXPECT_TRUE(pending->test());
      EXPECT_EQ(io->values<std::uint32_t>()[0], 6U);
    }
    // The group goes on with its next operation.
    Tensor next = Tensor::of<std::uint32_t>({1}, {1});
    group->all_reduce(next, ReduceOp::kSum, kTestTag);
    EXPECT_EQ(next.values<std::uint32_t>()[0], 2U);
  });
}

TEST(Loopback, AStartedCollectiveOutlivesItsCommunicator) {
  run_loopback_ranks(2, [](Communicator& world) {
    const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
    std::unique_ptr<PendingCollective> pending;
    {
      const auto group = world.split(0, world.rank(), kTestTag);
      pending = group->start_all_reduce(io, ReduceOp::kSum, kTestTag);
    }
    while (!pending->test()) std::this_thread::yield();
    EXPECT_EQ(io->values<std::uint32_t>()[0], 6U);
  });
}

TEST(Loopback, EachRankCountsForItself) {
  run_loopback_ranks(3, [](Communicator& world) {
    const auto own = world.split(world.rank(), 0, kTestTag);
    for (int i = 0; i < world.rank(); ++i) own->barrier(kTestTag);
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer), static_cast<std::uint64_t>(world.rank()));
  });
}

TEST(Loopback, TwoJobsInOneProcess) {
  const auto job = [](std::uint32_t value) {
    run_loopback_ranks(2, [&](Communicator& world) {
      for (int i = 0; i < 100; ++i) {
        Tensor io = Tensor::of<std::uint32_t>({value}, {1});
        world.all_reduce(io, ReduceOp::kSum, kTestTag);
        EXPECT_EQ(io.values<std::uint32_t>()[0], 2 * value);
      }
    });
  };
  std::jthread other([&] { job(5); });
  job(7);
}

TEST(Loopback, AtLeastOneRank) {
  EXPECT_THROW(run_loopback_ranks(0, [](Communicator&) {}), Error);
}

TEST(SingleRankDeathTest, AbortEndsTheProcessWithItsStatus) {
  EXPECT_EXIT(make_single_rank_communicator()->abort(71, "scales differ"), ::testing::ExitedWithCode(71),
              "^scales differ\n$");
  EXPECT_EXIT(make_single_rank_communicator()->split(0, 0, kTestTag)->abort(3, "in a group"),
              ::testing::ExitedWithCode(3), "in a group");
}

TEST(Callback, IncompleteCallbacksAreRefused) {
  CollectiveCallbacks callbacks;
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("all_reduce callback is missing"));
  callbacks.all_reduce = [](void*, std::int64_t, DType, ReduceOp) {};
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("all_gather callback is missing"));
  callbacks.all_gather = [](const void*, void*, std::size_t) {};
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("broadcast callback is missing"));
  callbacks.broadcast = [](void*, std::size_t, int) {};
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("barrier callback is missing"));
  callbacks.barrier = [] {};
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("abort callback is missing"));
  callbacks.abort = [](int, std::string_view) {};
  EXPECT_THAT(make_callback_communicator(callbacks)->world_ranks(), ElementsAre(0));

  callbacks.rank = 2;
  callbacks.size = 2;
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }), HasSubstr("rank 2 of 2 ranks"));
  callbacks.rank = 1;
  callbacks.world_ranks = {4};
  EXPECT_THAT(error_text([&] { make_callback_communicator(callbacks); }),
              HasSubstr("1 world ranks given for 2 ranks"));
  callbacks.world_ranks = {4, 6};
  EXPECT_THAT(make_callback_communicator(callbacks)->world_ranks(), ElementsAre(4, 6));
}

TEST(Callback, MisbehavingCallbacksAreNamed) {
  CollectiveCallbacks callbacks;
  callbacks.all_reduce = [](void*, std::int64_t, DType, ReduceOp) {
    throw std::runtime_error("NCCL is gone");
  };
  callbacks.all_gather = [](const void*, void*, std::size_t) {};
  callbacks.broadcast = [](void*, std::size_t, int) {};
  callbacks.barrier = [] {};
  callbacks.abort = [](int, std::string_view) {};
  const auto group = make_callback_communicator(callbacks);
  Tensor io(DType::kF32, {1});
  EXPECT_EQ(error_text([&] { group->all_reduce(io, ReduceOp::kSum, kTestTag); }), "NCCL is gone");
  EXPECT_THAT(error_text([&] { group->abort(1, "over"); }), HasSubstr("the abort callback returned"));
  EXPECT_THAT(error_text([&] { group->split(0, 0, kTestTag); }), HasSubstr("cannot be split"));
  callbacks.size = 2;  // a message needs somebody else
  const auto pair = make_callback_communicator(callbacks);
  EXPECT_THAT(error_text([&] { pair->send(io, 1, kTestTag); }), HasSubstr("no send callback"));
  EXPECT_THAT(error_text([&] { pair->receive(io, 1, kTestTag); }), HasSubstr("no receive callback"));
  callbacks.size = 1;
  callbacks.split = [](int, int) { return nullptr; };
  const auto other = make_callback_communicator(callbacks);
  EXPECT_THAT(error_text([&] { other->split(3, 0, kTestTag); }), HasSubstr("no group for color 3"));
  EXPECT_EQ(other->split(-1, 0, kTestTag), nullptr);
}

TEST(Faulty, SkipsOrDelaysOneCall) {
  run_loopback_ranks(2, [](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    const bool faulty_rank = world.rank() == 1;
    FaultyCommunicator faulty(*group, {.call = faulty_rank ? 1 : 1000});
    const auto sum = [&](float own) {
      Tensor io = Tensor::of<float>({own}, {1});
      faulty.all_reduce(io, ReduceOp::kSum, kTestTag);
      return io.values<float>()[0];
    };
    EXPECT_EQ(sum(1.0F), 2.0F);
    // Rank 1 skips its second call, so that its third one meets rank 0's second.
    if (faulty_rank) {
      EXPECT_EQ(sum(10.0F), 10.0F);
    }
    EXPECT_EQ(sum(100.0F), 200.0F);

    FaultyCommunicator late(*group,
                            {.kind = CommunicatorFault::Kind::kLate, .delay = std::chrono::milliseconds(30)});
    const auto start = std::chrono::steady_clock::now();
    late.barrier(kTestTag);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  });
}

}  // namespace
}  // namespace amaxscope::testing

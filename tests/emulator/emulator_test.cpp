#include "tests/emulator/emulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "tests/emulator/kernels_for_test.cuh"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr unsigned kBlocks = 6;

struct Sums {
  std::vector<std::uint32_t> out = std::vector<std::uint32_t>(kBlocks);
  std::vector<std::uint32_t> largest = std::vector<std::uint32_t>(1);
};

template <Mistake kMistake>
Sums run() {
  std::vector<std::uint32_t> x(kBlocks * kTestThreads);
  std::iota(x.begin(), x.end(), 0U);
  Sums sums;
  EXPECT_EQ(cuda::launch(sum_kernel<kMistake>, dim3{kBlocks, 1, 1}, kTestThreads, {}, x.data(),
                         sums.out.data(), sums.largest.data()),
            nullptr);
  return sums;
}

void expect_right(const Sums& sums) {
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(sums.out[block], 64 * 64 * block + 64 * 63 / 2);
  }
  EXPECT_EQ(sums.largest[0], sums.out.back());
}

/// What the emulator says of a mistake.
template <Mistake kMistake>
std::string failure() {
  try {
    run<kMistake>();
  } catch (const emulator::Failure& failure) {
    return failure.what();
  }
  return "nothing";
}

class EmulatorTest : public ::testing::Test {
 protected:
  void TearDown() override { emulator::settings() = {}; }
};

TEST_F(EmulatorTest, ARightKernelIsRightInEveryOrder) {
  for (const std::uint64_t seed : {0ULL, 1ULL, 2ULL, 77ULL}) {
    for (const unsigned workers : {1U, 2U, 5U}) {
      emulator::settings().seed = seed;
      emulator::settings().workers = workers;
      expect_right(run<Mistake::kNone>());
    }
  }
}

TEST_F(EmulatorTest, WhatIsReadTooEarlyIsNotThere) {
#ifdef AMAXSCOPE_TSAN
  GTEST_SKIP() << "this is a race, which emulator_mistakes has the thread sanitizer name";
#endif
  // The first warp runs to its shuffle before the second has written: it sums the filling, 0xFFFFFFFF each.
  EXPECT_NE(run<Mistake::kMissingBarrier>().out[0], 64U * 63U / 2U);
}

TEST_F(EmulatorTest, ABarrierThatNotAllReachIsADeadlock) {
  EXPECT_THAT(failure<Mistake::kDivergentBarrier>(),
              AllOf(HasSubstr("deadlock"), HasSubstr("in a barrier"), HasSubstr("kernels_for_test.cuh:")));
}

TEST_F(EmulatorTest, BarriersInTwoPlacesAreNotOne) {
  EXPECT_THAT(failure<Mistake::kOtherBarrier>(), AllOf(HasSubstr("waits at"), HasSubstr("while thread")));
}

TEST_F(EmulatorTest, LanesOutsideAMaskCannotBeRead) {
  EXPECT_THAT(failure<Mistake::kLaneOutsideMask>(), HasSubstr("outside the mask 0000ffff"));
  EXPECT_THAT(failure<Mistake::kOwnLaneMissing>(), HasSubstr("is not in its own mask"));
}

TEST_F(EmulatorTest, VectorsMustBeAligned) {
  EXPECT_THAT(failure<Mistake::kMisaligned>(), HasSubstr("16 bytes at a misaligned address"));
}

TEST_F(EmulatorTest, ALaunchThatADeviceRefusesIsRefused) {
  const auto refused = [](dim3 grid, int threads) {
    return cuda::launch(sum_kernel<Mistake::kNone>, grid, threads, {}, nullptr, nullptr, nullptr) != nullptr;
  };
  EXPECT_TRUE(refused({0, 1, 1}, 64));
  EXPECT_TRUE(refused({1, 65536, 1}, 64));
  EXPECT_TRUE(refused({1, 1, 1}, 1025));
}

TEST_F(EmulatorTest, WorkGoesToWhoeverRunsTheStream) {
  std::vector<std::function<void()>> queue;
  int stream = 0;
  emulator::settings().enqueue = [&](void* on, std::function<void()> work) {
    EXPECT_EQ(on, &stream);
    queue.push_back(std::move(work));
    return 0;
  };
  std::vector<std::uint32_t> x(kBlocks * kTestThreads, 2);
  Sums sums;
  EXPECT_EQ(cudaMemsetAsync(sums.out.data(), 0xFF, 4, reinterpret_cast<cudaStream_t>(&stream)), cudaSuccess);
  ASSERT_EQ(cuda::launch(sum_kernel<Mistake::kNone>, dim3{kBlocks, 1, 1}, kTestThreads, Stream{&stream},
                         x.data(), sums.out.data(), sums.largest.data()),
            nullptr);
  EXPECT_EQ(sums.out[0], 0U);
  ASSERT_EQ(queue.size(), 2U);
  queue[0]();
  EXPECT_EQ(sums.out[0], 0xFFFFFFFFU);
  queue[1]();
  EXPECT_EQ(sums.out[0], 128U);

  // What it answers is what the launch answers.
  emulator::settings().enqueue = [](void*, const std::function<void()>&) { return 999; };
  EXPECT_NE(cuda::launch(sum_kernel<Mistake::kNone>, dim3{kBlocks, 1, 1}, kTestThreads, Stream{&stream},
                         x.data(), sums.out.data(), sums.largest.data()),
            nullptr);
}

}  // namespace
}  // namespace amaxscope::test

// Calls that fail, ranks that do not come, errors that come later: typed errors, no hang, no crash.
#include <fmt/ranges.h>

#include <iterator>
#include <sstream>
#include <thread>

#include "collectives/exchange.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/nccl_group.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/error.hpp"
#include "tests/collectives/nccl_test.hpp"

namespace amaxscope::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr NcclOptions kHasty = {.deadline = milliseconds(300), .teardown = milliseconds(300)};

class NcclFailures : public NcclTest {};

/// What a step does: something with every call that the backend makes.
void use(Communicator& nccl) {
  Tensor io(DType::kF64, {4});
  nccl.all_reduce(io, ReduceOp::kSum, kNcclTag);
  Tensor bf16(DType::kBF16, {nccl.size(), 2});
  Tensor slice(DType::kBF16, {1, 2});
  nccl.reduce_scatter(bf16, slice, ReduceOp::kSum, kNcclTag);
  nccl.broadcast(io, 0, kNcclTag);
  const auto group = nccl.split(0, nccl.rank(), kNcclTag);
  group->barrier(kNcclTag);
  const auto pending =
      group->start_all_reduce(std::make_shared<Tensor>(DType::kU32, Shape{60}), ReduceOp::kMax, kNcclTag);
  // Who starts a collective has a deadline of its own.
  if (!poll_until(milliseconds(150), [&] { return pending->test(); })) {
    throw Error(ErrorCode::kDeadline, "the started reduction did not complete within 150 ms");
  }
}

/// Words of rank 0, so that all ranks do the same.
std::vector<std::string> agreed(Communicator& world, const std::vector<std::string>& words) {
  std::istringstream text(broadcast_text(world, fmt::format("{}", fmt::join(words, " ")), 0, kNcclTag));
  return {std::istream_iterator<std::string>(text), {}};
}

TEST_F(NcclFailures, EachCallMayFail) {
  constexpr int kMost = 8;  ///< of what polls there is no last call
  const NcclOptions options = {.deadline = milliseconds(150), .teardown = milliseconds(100)};
  {
    const auto nccl = make_nccl();
    use(*nccl);
  }
  // Whatever was called by now, but not what destruction calls, which says nothing, and what restores the
  // device.
  std::vector<std::string> functions = fake::called();
  std::erase_if(functions, [](const std::string& name) {
    return name.starts_with("cudaFree") || name.ends_with("Destroy") || name == "cudaStreamQuery" ||
           name == "ncclCommFinalize" || name == "ncclCommAbort";
  });
  functions = agreed(world(), functions);
  EXPECT_THAT(functions,
              ::testing::IsSupersetOf({"cudaMalloc", "cudaMallocHost", "cudaMemcpyAsync", "cudaEventRecord",
                                       "cudaEventQuery", "ncclAllReduce", "ncclCommSplit",
                                       "ncclCommInitRankConfig", "ncclGroupEnd"}));
  for (const std::string& function : functions) {
    const bool is_nccl = function.starts_with("nccl");
    // Destruction asks as well, and the end of a scope.
    const bool asks = function == "cudaGetDevice" || function == "cudaSetDevice" ||
                      function == "cudaEventQuery" || function == "ncclCommGetAsyncError";
    bool over = false;
    for (int nth = 1; !over && nth <= kMost; ++nth) {
      fake::reset();
      SCOPED_TRACE(fmt::format("call {} of {}", nth, function));
      // On every rank, or on the last one only.
      if (nth % 2 == 0 || last()) {
        fake::fail_at(function, nth, is_nccl ? int{ncclInternalError} : int{cudaErrorUnknown});
      }
      std::string text;
      bool reached = false;
      try {
        const auto nccl = make_nccl(options);
        use(*nccl);
        reached = fake::calls(function) >= nth && last();
      } catch (const Error& error) {
        text = error.what();
      }
      EXPECT_FALSE(reached && !asks) << "an error was lost";
      EXPECT_THAT(text, ::testing::AnyOf("", HasSubstr(is_nccl ? "internal error" : "cudaErrorUnknown"),
                                         HasSubstr("did not complete within"), HasSubstr("still connecting"),
                                         HasSubstr("was aborted")));
      EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
      EXPECT_EQ(fake::live().communicators, 0U);
      over = all_agree(world(), fake::calls(function) < nth, kNcclTag);
    }
  }
  expect_leftovers();
}

TEST_F(NcclFailures, ErrorsAreTyped) {
  expect_leftovers();
  const auto nccl = make_nccl();
  Tensor io(DType::kF32, {1});
  fake::fail_at("cudaMalloc", 1, cudaErrorMemoryAllocation);
  try {
    nccl->all_reduce(io, ReduceOp::kSum, kNcclTag);
    FAIL() << "nothing was thrown";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.status(), cudaErrorMemoryAllocation);
    EXPECT_STREQ(error.what(), "cudaMalloc of 16384 bytes: cudaErrorMemoryAllocation (out of memory)");
  }
  fake::fail_at("ncclAllReduce", 1, ncclSystemError);
  try {
    nccl->all_reduce(io, ReduceOp::kSum, kNcclTag);
    FAIL() << "nothing was thrown";
  } catch (const NcclError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_EQ(error.result(), ncclSystemError);
    EXPECT_STREQ(error.what(), "ncclAllReduce: unhandled system error");
  }
}

TEST_F(NcclFailures, ARankThatNeverComesEndsAtTheDeadline) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  expect_leftovers();
  for (const bool connected : {false, true}) {
    const auto nccl = make_nccl(kHasty);
    Tensor io = Tensor::of<float>({1.0F}, {1});
    if (connected) nccl->all_reduce(io, ReduceOp::kMax, kNcclTag);
    const auto start = std::chrono::steady_clock::now();
    if (!last()) {
      try {
        nccl->all_reduce(io, ReduceOp::kSum, kNcclTag);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDeadline);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("ncclAllReduce"), HasSubstr("300 ms")));
      }
      EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(300));
      EXPECT_EQ(io.values<float>()[0], 1.0F) << "untouched";
      try {
        nccl->barrier(kNcclTag);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("was aborted; it cannot go on"));
      }
    }
    world().barrier(kNcclTag);
  }
}

TEST_F(NcclFailures, ADeviceOperationThatHangsIsNoticedByTheNextThatWaits) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  expect_leftovers();
  const CudaStream stream = CudaStream::create();
  const OnDevice<float> io(std::vector{1.0F}, stream);
  {
    const auto nccl = make_nccl(kHasty);
    nccl->all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
    EXPECT_EQ(io.read()[0], static_cast<float>(size()));
    if (!last()) {
      nccl->all_reduce(io.view(), ReduceOp::kSum, kNcclTag);  // returns: the host does not wait
      EXPECT_THROW(nccl->barrier(kNcclTag), Error);
    }
    world().barrier(kNcclTag);
  }
  static_cast<void>(io.read());  // the stream has come to rest
}

TEST_F(NcclFailures, AnAbandonedCollectiveHoldsNothingUp) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  expect_leftovers();
  for (const bool connected : {false, true}) {
    auto nccl = make_nccl(kHasty);
    if (connected) nccl->barrier(kNcclTag);
    const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
    if (!last()) {
      auto pending = nccl->start_all_reduce(io, ReduceOp::kSum, kNcclTag);
      for (int i = 0; i < 100; ++i) EXPECT_FALSE(pending->test());
      pending.reset();
      nccl.reset();  // although the last rank does not come to its end before the barrier
    }
    world().barrier(kNcclTag);
    nccl.reset();
    EXPECT_EQ(fake::live().communicators, 0U);
    EXPECT_EQ(io->values<std::uint32_t>()[0], 3U);
  }
}

TEST_F(NcclFailures, AnAbandonedCollectiveStillServesTheOthersWithWhatItWasGiven) {
  if (size() == 1) GTEST_SKIP() << "nobody to serve";
  const auto nccl = make_nccl();
  nccl->barrier(kNcclTag);
  const auto start = [&](std::uint32_t value) {
    return nccl->start_all_reduce(std::make_shared<Tensor>(Tensor::of<std::uint32_t>({value}, {1})),
                                  ReduceOp::kSum, kNcclTag);
  };
  // The copy to the device is still to come when the next one is started.
  fake::set_stream_delay(milliseconds(20));
  if (!last()) {
    start(1).reset();
    start(100).reset();
  } else {
    Tensor first = Tensor::of<std::uint32_t>({1}, {1});
    nccl->all_reduce(first, ReduceOp::kSum, kNcclTag);
    EXPECT_EQ(first.values<std::uint32_t>()[0], static_cast<std::uint32_t>(size()));
    Tensor second = Tensor::of<std::uint32_t>({100}, {1});
    nccl->all_reduce(second, ReduceOp::kSum, kNcclTag);
    EXPECT_EQ(second.values<std::uint32_t>()[0], 100U * static_cast<unsigned>(size()));
  }
  nccl->barrier(kNcclTag);
}

TEST_F(NcclFailures, AnErrorThatComesLaterEndsWhatWaits) {
  expect_leftovers();
  const auto nccl = make_nccl();
  const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
  nccl->all_reduce(*io, ReduceOp::kMax, kNcclTag);
  world().barrier(kNcclTag);
  fake::set_stream_delay(milliseconds(20));
  const auto pending = nccl->start_all_reduce(io, ReduceOp::kMax, kNcclTag);
  fake::break_communicators(ncclRemoteError);
  try {
    while (!pending->test()) std::this_thread::yield();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const NcclError& error) {
    EXPECT_EQ(error.result(), ncclRemoteError);
    EXPECT_THAT(error.what(), HasSubstr("remote process exited"));
  }
  EXPECT_THROW(nccl->barrier(kNcclTag), Error);
  world().barrier(kNcclTag);
}

TEST_F(NcclFailures, AnErrorEndsTheWaitForARankThatDoesNotCome) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  expect_leftovers();
  const auto nccl = make_nccl();
  nccl->barrier(kNcclTag);
  if (!last()) {
    const auto io = std::make_shared<Tensor>(Tensor::of<std::uint32_t>({3}, {1}));
    const auto pending = nccl->start_all_reduce(io, ReduceOp::kMax, kNcclTag);
    EXPECT_FALSE(pending->test());
    fake::break_communicators(ncclRemoteError);
    EXPECT_THROW(poll_until(std::chrono::seconds(5), [&] { return pending->test(); }), NcclError);
  }
  world().barrier(kNcclTag);
  fake::break_communicators(ncclRemoteError);  // so that nobody waits for the other to end
}

TEST_F(NcclFailures, RanksThatEndAtDifferentTimesWaitForEachOtherOnlySoLong) {
  if (size() == 1) GTEST_SKIP() << "nobody to wait for";
  expect_leftovers();
  auto nccl = make_nccl(kHasty);
  nccl->barrier(kNcclTag);
  if (!last()) nccl.reset();  // the last rank keeps its own
  world().barrier(kNcclTag);
  nccl.reset();
  EXPECT_EQ(fake::live().communicators, 0U);
}

TEST_F(NcclFailures, TheLaterRankIsWaitedFor) {
  auto nccl = make_nccl();
  nccl->barrier(kNcclTag);
  if (last()) std::this_thread::sleep_for(milliseconds(100));
  nccl.reset();
  EXPECT_EQ(fake::calls("ncclCommAbort"), 0);
  EXPECT_EQ(fake::calls("ncclCommDestroy"), 1);
}

}  // namespace
}  // namespace amaxscope::testing

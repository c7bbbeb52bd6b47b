// The imitated NCCL between processes: what only several ranks can show.
#include <gmock/gmock.h>

#include <thread>

#include "core/half.hpp"
#include "tests/fake/fake_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {
namespace {

constexpr CollectiveTag kTag = {.traffic = Traffic::kTrainer, .what = "test"};

class FakeNcclRanks : public MpiTest {
 protected:
  void SetUp() override {
    MpiTest::SetUp();
    fake::reset();
    before_ = fake::live();
    ncclUniqueId id{};
    if (world().rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    world().broadcast(MutableTensorView(&id, DType::kU8, {sizeof id}), 0, kTag);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comm_, world().size(), id, world().rank(), &config), ncclInProgress);
    settle();
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&device_, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(&host_, kBytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    if (comm_ != nullptr) {
      EXPECT_EQ(ncclCommFinalize(comm_), ncclInProgress);
      settle();
      EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(host_), cudaSuccess);
    EXPECT_EQ(fake::live(), before_);
    EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
  }
  static constexpr std::size_t kBytes = 256;
  [[nodiscard]] ncclResult_t state() const {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm_, &state), ncclSuccess);
    return state;
  }
  ncclResult_t settle() const {
    while (state() == ncclInProgress) std::this_thread::yield();
    return state();
  }
  void abort() { EXPECT_EQ(ncclCommAbort(std::exchange(comm_, nullptr)), ncclSuccess); }
  template <class T>
  [[nodiscard]] T* host() const {
    return static_cast<T*>(host_);
  }
  void copy_in() const {
    EXPECT_EQ(cudaMemcpyAsync(device_, host_, kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  }
  void copy_out() const {
    EXPECT_EQ(cudaMemcpyAsync(host_, device_, kBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  }
  ncclResult_t reduce(ncclDataType_t type, std::size_t count = 1) const {
    return ncclAllReduce(device_, device_, count, type, ncclSum, comm_, stream_);
  }
  [[nodiscard]] bool first() const { return world().rank() == 0; }
  [[nodiscard]] float ranks() const { return static_cast<float>(world().size()); }
  [[nodiscard]] ncclComm_t comm() const { return comm_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] std::byte* device() const { return static_cast<std::byte*>(device_); }

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* device_ = nullptr;
  void* host_ = nullptr;
  fake::Live before_;
};

TEST_F(FakeNcclRanks, WhatIsEnqueuedWhileNcclIsInProgressComesBeforeTheCollective) {
  *host<float>() = 1.0F;
  copy_in();
  if (!first()) world().barrier(kTag);
  EXPECT_EQ(reduce(ncclFloat), ncclInProgress);
  if (first()) {  // the mistake: not to wait until NCCL has taken the call
    copy_out();
    EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
    EXPECT_EQ(*host<float>(), 1.0F) << "not reduced";
    world().barrier(kTag);
  }
  EXPECT_EQ(settle(), ncclSuccess);
  copy_out();
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(*host<float>(), ranks());
}

TEST_F(FakeNcclRanks, ACallWhileNcclIsInProgressIsSeen) {
  if (!first()) world().barrier(kTag);
  EXPECT_EQ(reduce(ncclFloat), ncclInProgress);
  if (first()) {
    EXPECT_EQ(reduce(ncclFloat), ncclInvalidUsage);
    EXPECT_THAT(fake::violations(),
                ::testing::ElementsAre("ncclAllReduce of a communicator that is in progress"));
    fake::reset();
    world().barrier(kTag);
  }
  EXPECT_EQ(settle(), ncclSuccess);
}

TEST_F(FakeNcclRanks, SumsOfSixteenBitTypesAreRoundedEachTime) {
  // 256 + 1 is 256 in bf16; a backend that lets NCCL add is told from one that adds in fp32 (256 + 1 + 1 =
  // 258).
  *host<BF16>() = to_bf16(first() ? 256.0F : 1.0F);
  copy_in();
  reduce(ncclBfloat16);
  EXPECT_EQ(settle(), ncclSuccess);
  copy_out();
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(to_float(*host<BF16>()), 256.0F);
}

TEST_F(FakeNcclRanks, DifferentCallsEndInAnError) {
  reduce(ncclFloat, first() ? 1 : 2);
  while (state() != ncclInternalError) std::this_thread::yield();
  EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady) << "as a kernel whose partner does not come";
  abort();
}

TEST_F(FakeNcclRanks, ARankThatDoesNotComeIsWaitedForUntilTheAbort) {
  reduce(ncclFloat);
  EXPECT_EQ(settle(), ncclSuccess);
  if (!first()) {
    EXPECT_EQ(reduce(ncclFloat), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady);
  }
  world().barrier(kTag);
  abort();
}

TEST_F(FakeNcclRanks, SendsAndReceivesOfAGroupGoSideBySide) {
  // Everybody sends to everybody, itself included; one after the other nobody would get on.
  const int n = world().size();
  for (int peer = 0; peer < n; ++peer) host<int>()[peer] = 10 * world().rank() + peer;
  copy_in();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int peer = 0; peer < n; ++peer) {
    const auto at = static_cast<std::size_t>(peer) * sizeof(int);
    EXPECT_EQ(ncclSend(device() + at, 1, ncclInt, peer, comm(), stream()), ncclSuccess);
    EXPECT_EQ(ncclRecv(device() + kBytes / 2 + at, 1, ncclInt, peer, comm(), stream()), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(settle(), ncclSuccess);
  copy_out();
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  const int* received = host<int>() + kBytes / 2 / sizeof(int);
  for (int peer = 0; peer < n; ++peer) EXPECT_EQ(received[peer], 10 * peer + world().rank());
}

}  // namespace
}  // namespace amaxscope::testing

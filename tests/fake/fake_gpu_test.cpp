// The imitation itself: that it does what the real libraries promise, and that mistakes which a backend could
// make are seen. Each mistake stands beside the right way, which must go through without a word.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <bit>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    before_ = fake::live();
  }
  /// Every test leaves the process as it was, mistakes included.
  void TearDown() override { EXPECT_EQ(fake::live(), before_); }

 private:
  fake::Live before_;
};

struct Stream {
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() {
    EXPECT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t handle = nullptr;
};

struct Event {
  Event() { EXPECT_EQ(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), cudaSuccess); }
  ~Event() { EXPECT_EQ(cudaEventDestroy(handle), cudaSuccess); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle = nullptr;
};

template <class T, bool kOnDevice>
struct Memory {
  explicit Memory(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    void* address = nullptr;
    EXPECT_EQ(kOnDevice ? cudaMalloc(&address, bytes) : cudaMallocHost(&address, bytes), cudaSuccess);
    data = static_cast<T*>(address);
  }
  ~Memory() { EXPECT_EQ(kOnDevice ? cudaFree(data) : cudaFreeHost(data), cudaSuccess); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* data;
};
using Device = Memory<float, true>;
using Pinned = Memory<float, false>;

/// Captures what `record` enqueues and instantiates it.
struct Graph {
  template <class Record>
  explicit Graph(cudaStream_t stream, Record record, unsigned long long flags = 0) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    record();
    ended = cudaStreamEndCapture(stream, &graph);
    if (ended == cudaSuccess) {
      EXPECT_EQ(cudaGraphInstantiate(&executable, graph, flags), cudaSuccess);
    }
  }
  ~Graph() {
    if (ended != cudaSuccess) return;
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaError_t ended = cudaSuccess;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
};

/// A communicator of one rank that does not block, ready for calls.
struct Comm {
  explicit Comm(bool blocking = false) {
    ncclUniqueId id{};
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    EXPECT_THAT(ncclCommInitRankConfig(&handle, 1, id, 0, &config),
                ::testing::AnyOf(ncclSuccess, ncclInProgress));
    settle();
  }
  ~Comm() {
    if (handle == nullptr) return;
    EXPECT_THAT(ncclCommFinalize(handle), ::testing::AnyOf(ncclSuccess, ncclInProgress));
    settle();
    EXPECT_EQ(ncclCommDestroy(handle), ncclSuccess);
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  void settle() const {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield()) {
      ASSERT_EQ(ncclCommGetAsyncError(handle, &state), ncclSuccess);
    }
  }
  /// The sum over the one rank: the values themselves.
  [[nodiscard]] ncclResult_t reduce(float* data, cudaStream_t stream) const {
    return ncclAllReduce(data, data, 1, ncclFloat, ncclSum, handle, stream);
  }
  ncclComm_t handle = nullptr;
};

bool is_filled(float value) { return std::bit_cast<std::uint32_t>(value) == 0xFFFFFFFFU; }

TEST_F(FakeGpu, MemoryOfTheDeviceIsNotTheHosts) {
  Device device(4);
  Pinned host(4);
  EXPECT_TRUE(is_filled(*device.data));
  EXPECT_TRUE(is_filled(*host.data));
  const Stream stream;
  std::array<float, 4> pageable{};
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream.handle);
  };
  EXPECT_EQ(copy(device.data, host.data, 16, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(fake::pageable_copies(), 0);
  EXPECT_EQ(copy(device.data, pageable.data(), 16, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(fake::pageable_copies(), 1) << "allowed, and the host would wait";
  EXPECT_EQ(copy(device.data, host.data, 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue)
      << "past its end";
  EXPECT_EQ(copy(device.data + 1, host.data, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data, pageable.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(device.data, device.data, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "told once";
  EXPECT_EQ(cudaFree(host.data), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pageable.data()), cudaErrorInvalidValue);
}

TEST_F(FakeGpu, AMachineWithoutADriverSaysSoInEveryCall) {
  fake::set_driver_error(cudaErrorInsufficientDriver);
  int devices = -7;
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaErrorInsufficientDriver);
  EXPECT_EQ(devices, -7) << "left as it is, as the real one does";
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorInsufficientDriver);
  fake::reset();
  fake::set_devices(0);
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaErrorNoDevice);
  fake::set_devices(2);
  EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  EXPECT_EQ(devices, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(FakeGpu, TheNthCallFails) {
  fake::fail_at("cudaMalloc", 2, cudaErrorMemoryAllocation);
  const Device first(1);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  const Device third(1);
  EXPECT_EQ(fake::calls("cudaMalloc"), 3);
  EXPECT_THAT(fake::called(), ElementsAre("cudaMalloc"));
}

TEST_F(FakeGpu, AnEventTellsTheTruth) {
  fake::set_stream_delay(milliseconds(20));
  const Stream stream;
  const Event event;
  EXPECT_EQ(cudaEventQuery(event.handle), cudaSuccess) << "never recorded";
  Pinned host(1);
  Device device(1);
  EXPECT_EQ(cudaMemcpyAsync(device.data, host.data, 4, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event.handle, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event.handle), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream.handle), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(event.handle), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event.handle), cudaSuccess);
}

/// The way of a value through the device: in, reduced, out. Where the event is recorded is the question.
class RoundTrip : public FakeGpu {
 protected:
  void SetUp() override {
    FakeGpu::SetUp();
    memory_ = std::make_unique<Round>();
    // Connects.
    EXPECT_THAT(memory_->comm.reduce(memory_->device.data, memory_->stream.handle),
                ::testing::AnyOf(ncclSuccess, ncclInProgress));
    memory_->comm.settle();
    EXPECT_EQ(cudaStreamSynchronize(memory_->stream.handle), cudaSuccess);
    *memory_->in.data = 2.0F;
    fake::set_stream_delay(milliseconds(10));
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamSynchronize(memory_->stream.handle), cudaSuccess);
    EXPECT_THAT(fake::violations(), IsEmpty());
    memory_.reset();
    FakeGpu::TearDown();
  }
  struct Round {
    Stream stream;
    Event event;
    Device device{1};
    Pinned in{1};
    Pinned out{1};
    Comm comm;
  };
  [[nodiscard]] Round& round() const { return *memory_; }
  void copy_in() const {
    EXPECT_EQ(cudaMemcpyAsync(round().device.data, round().in.data, 4, cudaMemcpyHostToDevice,
                              round().stream.handle),
              cudaSuccess);
  }
  void reduce() const {
    EXPECT_EQ(round().comm.reduce(round().device.data, round().stream.handle), ncclSuccess);
  }
  void copy_out() const {
    EXPECT_EQ(cudaMemcpyAsync(round().out.data, round().device.data, 4, cudaMemcpyDeviceToHost,
                              round().stream.handle),
              cudaSuccess);
  }
  void record() const {
    EXPECT_EQ(cudaEventRecord(round().event.handle, round().stream.handle), cudaSuccess);
  }
  void wait() const {
    while (cudaEventQuery(round().event.handle) == cudaErrorNotReady) std::this_thread::yield();
  }

 private:
  std::unique_ptr<Round> memory_;
};

TEST_F(RoundTrip, TheRightWay) {
  copy_in();
  reduce();
  copy_out();
  record();
  wait();
  EXPECT_EQ(*round().out.data, 2.0F);
}

TEST_F(RoundTrip, AnEventRecordedBeforeTheCollectiveIsSeen) {
  copy_in();
  record();
  reduce();
  copy_out();
  wait();
  EXPECT_TRUE(is_filled(*round().out.data));
}

TEST_F(RoundTrip, AWaitThatReturnsAtOnceIsSeen) {
  copy_in();
  reduce();
  copy_out();
  record();
  EXPECT_TRUE(is_filled(*round().out.data));
}

TEST_F(RoundTrip, ACopyOnAnotherStreamWithoutAnEventIsSeen) {
  fake::set_stream_delay(milliseconds(0));
  for (const bool held_back : {false, true}) {
    const Stream other;
    EXPECT_EQ(cudaMemsetAsync(round().device.data, 0, 4, round().stream.handle), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(round().stream.handle), cudaSuccess);
    // The stream is busy with something else for as long as the test likes.
    std::atomic<bool> go{false};
    fake::enqueue(round().stream.handle, [&] {
      while (!go) std::this_thread::yield();
    });
    copy_in();
    reduce();
    record();
    if (held_back) {
      EXPECT_EQ(cudaStreamWaitEvent(other.handle, round().event.handle, 0), cudaSuccess);
      go = true;
    }
    EXPECT_EQ(cudaMemcpyAsync(round().out.data, round().device.data, 4, cudaMemcpyDeviceToHost, other.handle),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(other.handle), cudaSuccess);
    go = true;
    EXPECT_EQ(*round().out.data, held_back ? 2.0F : 0.0F);
    EXPECT_EQ(cudaStreamSynchronize(round().stream.handle), cudaSuccess);
  }
}

TEST_F(FakeGpu, DestructionWithWorkPendingIsSaidAndBreaksNothing) {
  fake::set_stream_delay(milliseconds(20));
  {
    const Stream stream;
    Device device(1);
    ncclComm_t gone = nullptr;
    {
      Comm comm(/*blocking=*/true);
      EXPECT_EQ(comm.reduce(device.data, stream.handle), ncclSuccess);
      gone = comm.handle;
      EXPECT_EQ(ncclCommDestroy(std::exchange(comm.handle, nullptr)), ncclSuccess);
    }
    EXPECT_THAT(fake::violations(),
                ElementsAre("ncclCommDestroy with 1 operations pending, for which it waits"));
    EXPECT_EQ(ncclAllReduce(device.data, device.data, 1, ncclFloat, ncclSum, gone, stream.handle),
              ncclInvalidArgument);
    EXPECT_THAT(fake::violations(), Contains("ncclAllReduce of a communicator that is gone"));
  }
  fake::reset();
  {
    Comm comm;
    EXPECT_EQ(ncclCommDestroy(std::exchange(comm.handle, nullptr)), ncclSuccess);
    EXPECT_THAT(fake::violations(), ElementsAre(HasSubstr("before ncclCommFinalize has ended")));
  }
  fake::reset();
  fake::set_stream_delay(milliseconds(20));
  {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    std::atomic<bool> ran{false};
    fake::enqueue(stream, [&] { ran = true; });
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_THAT(fake::violations(), ElementsAre("cudaStreamDestroy of a stream with 1 operations in it"));
    while (!ran) std::this_thread::yield();
  }
}

TEST_F(FakeGpu, FreeingUnderAKernelThatHangsIsSaid) {
  const Stream stream;
  std::atomic<bool> go{false};
  fake::enqueue(stream.handle, [&] {
    while (!go) std::this_thread::sleep_for(milliseconds(1));
  });
  { const Device device(1); }
  EXPECT_THAT(fake::violations(), ElementsAre("cudaFree waits for a device that does not come to rest"));
  go = true;
}

TEST_F(FakeGpu, NcclTakesMemoryOfTheDeviceOnly) {
  const Comm comm;
  const Stream stream;
  Pinned host(1);
  Device device(1);
  EXPECT_EQ(comm.reduce(host.data, stream.handle), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(device.data, device.data, 2, ncclFloat, ncclSum, comm.handle, stream.handle),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(device.data, device.data, 1, ncclFloat, 1, comm.handle, stream.handle),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(device.data, device.data, 1, ncclFloat, ncclSum, nullptr, stream.handle),
            ncclInvalidArgument);
}

TEST_F(FakeGpu, AnAbortEndsWhatHangs) {
  // One rank of two: the other never comes.
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  std::this_thread::sleep_for(milliseconds(20));
  ncclResult_t state = ncclSuccess;
  ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeGpu, ACaptureDoesNothingAndItsLaunchesReadWhatIsThereThen) {
  const Stream stream;
  const Device from(1);
  const Device to(1);
  const Pinned host(1);
  int kernels = 0;
  const Graph graph(stream.handle, [&] {
    EXPECT_EQ(cudaMemcpyAsync(to.data, from.data, sizeof(float), cudaMemcpyDeviceToDevice, stream.handle),
              cudaSuccess);
    EXPECT_EQ(fake::launch(stream.handle, [&] { ++kernels; }), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(host.data, to.data, sizeof(float), cudaMemcpyDeviceToHost, stream.handle),
              cudaSuccess);
  });
  ASSERT_EQ(graph.ended, cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
  EXPECT_EQ(kernels, 0);
  for (const float value : {1.0F, 2.0F, 3.0F}) {
    EXPECT_EQ(fake::launch(stream.handle, [&from, value] { *from.data = value; }), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(graph.executable, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    EXPECT_EQ(*host.data, value);
  }
  EXPECT_EQ(kernels, 3);
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(FakeGpu, WhatWaitsEndsACapture) {
  const Stream stream;
  const Event event;
  Device memory(1);
  float here = 0;
  const std::vector<std::function<cudaError_t()>> calls = {
      [&] { return cudaStreamSynchronize(stream.handle); },
      [&] { return cudaStreamQuery(stream.handle); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaEventQuery(event.handle); },
      [&] { return cudaEventSynchronize(event.handle); },
      [&] { return cudaMemcpy(&here, memory.data, sizeof here, cudaMemcpyDeviceToHost); },
      [&] {
        void* address = nullptr;
        return cudaMalloc(&address, 4);
      },
      [&] { return cudaFree(memory.data); },
      [&] {
        void* address = nullptr;
        return cudaMallocHost(&address, 4);
      }};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Graph graph(stream.handle, [&] { EXPECT_EQ(calls[i](), cudaErrorStreamCaptureUnsupported) << i; });
    EXPECT_EQ(graph.ended, cudaErrorStreamCaptureInvalidated) << i;
  }
}

TEST_F(FakeGpu, EventsDoNotCrossTheBordersOfACapture) {
  const Stream stream;
  const Event outside;
  const Event inside;
  EXPECT_EQ(cudaEventRecord(outside.handle, stream.handle), cudaSuccess);
  {
    const Graph graph(stream.handle, [&] {
      EXPECT_EQ(cudaStreamWaitEvent(stream.handle, outside.handle, 0), cudaErrorStreamCaptureIsolation);
    });
    EXPECT_EQ(graph.ended, cudaErrorStreamCaptureInvalidated);
  }
  const Graph graph(stream.handle, [&] {
    EXPECT_EQ(cudaEventRecord(inside.handle, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream.handle, inside.handle, 0), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(inside.handle), cudaErrorCapturedEvent);
  });
  EXPECT_EQ(graph.ended, cudaSuccess);
}

TEST_F(FakeGpu, MemoryOfAGraphIsItsOwn) {
  const Stream stream;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  void* before = nullptr;
  void* own = nullptr;
  void* left = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&before, 4, pool, stream.handle), cudaSuccess);
  std::vector<int> seen;
  {
    const Graph graph(stream.handle, [&] {
      EXPECT_EQ(cudaMallocFromPoolAsync(&own, 4, pool, stream.handle), cudaSuccess);
      EXPECT_EQ(cudaMallocFromPoolAsync(&left, 4, pool, stream.handle), cudaSuccess);
      EXPECT_EQ(fake::launch(stream.handle, [&] { seen.push_back(*static_cast<int*>(own)); }), cudaSuccess);
      EXPECT_EQ(cudaMemsetAsync(own, 0, 4, stream.handle), cudaSuccess);
      EXPECT_EQ(cudaFreeAsync(own, stream.handle), cudaSuccess);
      EXPECT_EQ(cudaFreeAsync(before, stream.handle), cudaErrorInvalidValue);
    });
    EXPECT_THAT(fake::violations(), ElementsAre(HasSubstr("was not allocated in it")));
    EXPECT_EQ(cudaFreeAsync(left, stream.handle), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphLaunch(graph.executable, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(graph.executable, stream.handle), cudaErrorInvalidValue)
        << "left is still there";
    cudaGraphExec_t another = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&another, graph.graph, 0), cudaErrorInvalidValue) << "one at a time";
  }
  {
    const Graph graph(
        stream.handle,
        [&] {
          EXPECT_EQ(cudaMallocFromPoolAsync(&left, 4, pool, stream.handle), cudaSuccess);
          EXPECT_EQ(fake::launch(stream.handle, [&] { seen.push_back(*static_cast<int*>(left)); }),
                    cudaSuccess);
          EXPECT_EQ(cudaMemsetAsync(left, 0, 4, stream.handle), cudaSuccess);
        },
        cudaGraphInstantiateFlagAutoFreeOnLaunch);
    EXPECT_EQ(cudaGraphLaunch(graph.executable, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(graph.executable, stream.handle), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    EXPECT_EQ(*static_cast<int*>(left), 0) << "until the next launch";
  }
  EXPECT_THAT(seen, ElementsAre(-1, -1, -1)) << "what was there before is gone";
  EXPECT_EQ(cudaFreeAsync(before, stream.handle), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

}  // namespace
}  // namespace amaxscope::testing

// A stream's work captured into a graph, of a device or of the imitated CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/device_backend.hpp"

namespace amaxscope::testing {

class CapturedGraph {
 public:
  /// Records what record() enqueues on the stream.
  template <class Record>
  CapturedGraph(Stream stream, Record record) : stream_(static_cast<cudaStream_t>(stream.handle)) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    record();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph_), cudaSuccess) << "something waited";
    // What the step leaves alive is freed before the next launch.
    EXPECT_EQ(cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagAutoFreeOnLaunch),
              cudaSuccess);
  }
  CapturedGraph(CapturedGraph&& other) noexcept
      : stream_(other.stream_),
        graph_(std::exchange(other.graph_, nullptr)),
        executable_(std::exchange(other.executable_, nullptr)) {}
  CapturedGraph& operator=(CapturedGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(executable_, other.executable_);
    return *this;
  }
  ~CapturedGraph() {
    if (graph_ == nullptr) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(executable_), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph_), cudaSuccess);
  }
  void launch() const { EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// to = a host tensor, in the order of its stream.
inline void overwrite(Tensor& to, const TensorView& host) {
  const MutableTensorView there = to;
  const auto copy = backend_of("test", there).staging().room_for(there);
  copy_tensor(copy->host(), host);
  copy->store(there);
}

}  // namespace amaxscope::testing

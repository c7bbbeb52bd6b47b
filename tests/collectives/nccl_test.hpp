// Fixture of the tests of what is particular to the NCCL backend, on the imitated CUDA and NCCL.
#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_handles.hpp"
#include "tests/fake/fake_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

constexpr CollectiveTag kNcclTag = {.traffic = Traffic::kTrainer, .what = "test"};

/// world() is MPI's, to start NCCL and to wait for each other by.
class NcclTest : public MpiTest {
 protected:
  void SetUp() override {
    MpiTest::SetUp();
    fake::reset();
    before_ = fake::live();
  }
  /// What the imitation has seen that should not be, and what is left of what was made in the test.
  void TearDown() override {
    EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
    if (leaves_nothing_) {
      EXPECT_EQ(fake::live(), before_);
    }
  }
  /// For tests in which a group is aborted: what a hanging device might still write to is kept.
  void expect_leftovers() { leaves_nothing_ = false; }

  [[nodiscard]] std::unique_ptr<Communicator> make_nccl(NcclOptions options = {
                                                            .deadline = std::chrono::seconds(60),
                                                            .teardown = std::chrono::seconds(20)}) const {
    return make_nccl_communicator(world(), options);
  }
  [[nodiscard]] int rank() const { return world().rank(); }
  [[nodiscard]] int size() const { return world().size(); }
  [[nodiscard]] bool last() const { return rank() == size() - 1; }

 private:
  bool leaves_nothing_ = true;
  fake::Live before_;
};

/// Elements in device memory, whose work is on a stream.
template <class T>
class OnDevice {
 public:
  OnDevice(std::size_t count, const CudaStream& stream)
      : memory_(count * sizeof(T)), count_(count), stream_(stream.get()) {}
  OnDevice(const std::vector<T>& values, const CudaStream& stream) : OnDevice(values.size(), stream) {
    EXPECT_EQ(cudaMemcpy(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  [[nodiscard]] MutableTensorView view() const { return view({static_cast<std::int64_t>(count_)}); }
  [[nodiscard]] MutableTensorView view(Shape shape) const {
    return {memory_.data(), DTypeOf<T>::value, shape, Device{DeviceKind::kCuda, 0}, Stream{stream_}};
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  /// After everything on the stream.
  [[nodiscard]] std::vector<T> read() const {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_.data(), memory_.bytes(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  DeviceBuffer memory_;
  std::size_t count_;
  cudaStream_t stream_;
};

}  // namespace amaxscope::testing

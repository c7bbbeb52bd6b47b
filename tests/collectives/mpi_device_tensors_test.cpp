// MPI with tensors of a device, which pass through page-locked memory: on the imitated CUDA runtime.
#include <gmock/gmock.h>

#include "collectives/mpi/mpi_communicator.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/cuda/cuda_host_staging.hpp"
#include "tests/collectives/on_device.hpp"
#include "tests/fake/fake_gpu.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;

constexpr CollectiveTag kTag = {.traffic = Traffic::kTrainer, .what = "test"};

class MpiDeviceTensors : public MpiTest {
 protected:
  void SetUp() override {
    MpiTest::SetUp();
    fake::reset();
    before_ = fake::live();
    stream_ = CudaStream::create();
    staged_ = make_mpi_communicator(MPI_COMM_WORLD, make_cuda_host_staging(0));
  }
  void TearDown() override {
    staged_.reset();
    stream_ = {};
    EXPECT_EQ(fake::live(), before_);
    EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
    EXPECT_EQ(fake::pageable_copies(), reads_);
  }
  [[nodiscard]] Communicator& staged() const { return *staged_; }
  [[nodiscard]] const CudaStream& stream() const { return stream_; }
  [[nodiscard]] float ranks() const { return static_cast<float>(staged_->size()); }
  [[nodiscard]] float of_rank(float value) const { return value * static_cast<float>(staged_->rank() + 1); }
  /// Made and read by the test itself, through memory that is not page-locked.
  template <class T>
  OnDevice<T> made(const std::vector<T>& values) {
    ++reads_;
    return OnDevice<T>(values, stream_);
  }
  template <class T>
  std::vector<T> read(const OnDevice<T>& tensor) {
    ++reads_;
    return tensor.read();
  }

 private:
  CudaStream stream_;
  std::unique_ptr<Communicator> staged_;
  fake::Live before_;
  int reads_ = 0;
};

TEST_F(MpiDeviceTensors, EveryOperation) {
  EXPECT_EQ(staged().device(), (Device{DeviceKind::kCuda, 0}));
  const float sum = ranks() * (ranks() + 1) / 2;
  const auto io = made(std::vector{of_rank(1), of_rank(2)});
  const std::vector<MutableTensorView> both = {io.view()};
  staged().all_reduce_each(both, ReduceOp::kSum, kTag);
  EXPECT_THAT(read(io), ElementsAre(sum, 2 * sum));

  const auto own = made(std::vector{of_rank(1), of_rank(-1)});
  const OnDevice<float> all(static_cast<std::size_t>(2 * staged().size()), stream());
  staged().all_gather(own.view(), all.view({staged().size(), 2}), kTag);
  const std::vector<float> gathered = read(all);
  for (int r = 0; r < staged().size(); ++r) {
    EXPECT_EQ(gathered[static_cast<std::size_t>(2 * r)], static_cast<float>(r + 1));
    EXPECT_EQ(gathered[static_cast<std::size_t>(2 * r + 1)], static_cast<float>(-r - 1));
  }
  staged().reduce_scatter(all.view({staged().size(), 2}), own.view({1, 2}), ReduceOp::kSum, kTag);
  EXPECT_THAT(read(own), ElementsAre(of_rank(ranks()), of_rank(-ranks())));
  staged().broadcast(own.view(), staged().size() - 1, kTag);
  EXPECT_THAT(read(own), ElementsAre(ranks() * ranks(), -ranks() * ranks()));
  if (staged().size() > 1) {
    if (staged().rank() == 0) staged().send(io.view(), 1, kTag);
    if (staged().rank() == 1) {
      staged().receive(own.view(), 0, kTag);
      EXPECT_THAT(read(own), ElementsAre(sum, 2 * sum));
    }
  }
  staged().all_reduce(all.view({0}), ReduceOp::kSum, kTag);
}

TEST_F(MpiDeviceTensors, SixteenBitSumsAreRoundedOnce) {
  // 256 + 1 + .. + 1: with a rounding after each addition it would stay 256, as 256 + 1 does.
  const auto io = made(std::vector{to_bf16(staged().rank() == 0 ? 256.0F : 1.0F)});
  staged().all_reduce(io.view(), ReduceOp::kSum, kTag);
  EXPECT_EQ(to_float(read(io)[0]), to_float(to_bf16(255.0F + ranks())));
}

TEST_F(MpiDeviceTensors, AnOperationStandsBetweenTheWorkOfItsStream) {
  fake::set_stream_delay(std::chrono::milliseconds(3));
  const OnDevice<float> amax(std::size_t{1}, stream());
  const OnDevice<float> scale(std::size_t{1}, stream());
  for (int i = 0; i < 3; ++i) {
    fake::enqueue(stream().get(), [&, i] { *amax.data() = of_rank(static_cast<float>(i + 1)); });
    staged().all_reduce(amax.view(), ReduceOp::kMax, kTag);
    fake::enqueue(stream().get(), [&] { *scale.data() = 448.0F / *amax.data(); });
  }
  EXPECT_THAT(read(scale), ElementsAre(448.0F / (3 * ranks())));
}

TEST_F(MpiDeviceTensors, MemoryIsUsedAgainOnceTheDeviceHasReadIt) {
  const OnDevice<float> io(std::size_t{1}, stream());
  const auto reduce = [&] { staged().all_reduce(io.view(), ReduceOp::kMax, kTag); };
  reduce();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(cudaStreamSynchronize(stream().get()), cudaSuccess);
    reduce();
  }
  EXPECT_EQ(fake::calls("cudaMallocHost"), 1);
  // While its result is still on its way to the device, the next one has memory of its own.
  fake::set_stream_delay(std::chrono::milliseconds(5));
  const CudaStream other = CudaStream::create();
  const OnDevice<float> there(std::size_t{1}, other);
  reduce();
  staged().all_reduce(there.view(), ReduceOp::kMax, kTag);
  EXPECT_EQ(fake::calls("cudaMallocHost"), 2);
  EXPECT_EQ(cudaStreamSynchronize(other.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream().get()), cudaSuccess);
}

TEST_F(MpiDeviceTensors, GroupsAndHostTensorsWorkAsEver) {
  const auto half = staged().split(staged().rank() % 2, staged().rank(), kTag);
  EXPECT_EQ(half->device(), staged().device());
  const auto io = made(std::vector{1.0F});
  half->all_reduce(io.view(), ReduceOp::kSum, kTag);
  EXPECT_EQ(read(io)[0], static_cast<float>(half->size()));
  EXPECT_EQ(staged().counters().calls(Traffic::kTrainer), 1U);
  EXPECT_EQ(staged().counters().bytes(Traffic::kTrainer), 4U);
  Tensor host = Tensor::of<float>({1.0F}, {1});
  staged().all_reduce(host, ReduceOp::kSum, kTag);
  EXPECT_EQ(host.values<float>()[0], ranks());
}

TEST_F(MpiDeviceTensors, AFailingCopyIsATypedError) {
  const OnDevice<float> io(std::size_t{1}, stream());
  for (const char* function :
       {"cudaMallocHost", "cudaMemcpyAsync", "cudaEventRecord", "cudaEventSynchronize"}) {
    fake::fail_at(function, 1, cudaErrorUnknown);
    EXPECT_THROW(staged().all_reduce(io.view(), ReduceOp::kMax, kTag), CudaError) << function;
  }
  EXPECT_THROW(static_cast<void>(make_cuda_host_staging(1)), CudaError);
}

}  // namespace
}  // namespace amaxscope::testing

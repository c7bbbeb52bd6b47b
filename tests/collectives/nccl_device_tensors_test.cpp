// Operations on device memory: results, their place among the work of streams, and that the host does not
// wait.
#include <bit>

#include "collectives/amax_reducer.hpp"
#include "core/error.hpp"
#include "tests/collectives/nccl_test.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclDeviceTensors : public NcclTest {
 protected:
  void SetUp() override {
    NcclTest::SetUp();
    stream_ = CudaStream::create();
    nccl_ = make_nccl();
  }
  void TearDown() override {
    nccl_.reset();
    stream_ = {};
    NcclTest::TearDown();
  }
  [[nodiscard]] Communicator& nccl() const { return *nccl_; }
  [[nodiscard]] const CudaStream& stream() const { return stream_; }
  [[nodiscard]] float of_rank(float value) const { return value * static_cast<float>(rank() + 1); }
  [[nodiscard]] float ranks() const { return static_cast<float>(size()); }
  [[nodiscard]] float sum() const { return ranks() * (ranks() + 1) / 2; }

 private:
  CudaStream stream_;
  std::unique_ptr<Communicator> nccl_;
};

TEST_F(NcclDeviceTensors, EveryOperation) {
  const OnDevice<float> io(std::vector{of_rank(1), of_rank(2)}, stream());
  nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
  EXPECT_THAT(io.read(), ElementsAre(sum(), 2 * sum()));

  const OnDevice<float> own(std::vector{of_rank(1), of_rank(-1)}, stream());
  const OnDevice<float> all(static_cast<std::size_t>(2 * size()), stream());
  nccl().all_gather(own.view(), all.view({size(), 2}), kNcclTag);
  const std::vector<float> gathered = all.read();
  for (int r = 0; r < size(); ++r) {
    EXPECT_EQ(gathered[static_cast<std::size_t>(2 * r)], static_cast<float>(r + 1));
    EXPECT_EQ(gathered[static_cast<std::size_t>(2 * r + 1)], static_cast<float>(-r - 1));
  }

  nccl().reduce_scatter(all.view({size(), 2}), own.view({1, 2}), ReduceOp::kSum, kNcclTag);
  EXPECT_THAT(own.read(), ElementsAre(of_rank(ranks()), of_rank(-ranks())));

  nccl().broadcast(own.view(), size() - 1, kNcclTag);
  EXPECT_THAT(own.read(), ElementsAre(ranks() * ranks(), -ranks() * ranks()));

  if (size() > 1) {
    if (rank() == 0) nccl().send(io.view(), 1, kNcclTag);
    if (rank() == 1) {
      nccl().receive(own.view(), 0, kNcclTag);
      EXPECT_THAT(own.read(), ElementsAre(sum(), 2 * sum()));
    }
  }
  const OnDevice<float> nothing(std::size_t{1}, stream());
  nccl().all_reduce(nothing.view({0}), ReduceOp::kSum, kNcclTag);
  nccl().broadcast(nothing.view({0}), 0, kNcclTag);
}

TEST_F(NcclDeviceTensors, AnAmaxIsReducedBetweenTwoKernelsAndTheHostWaitsForNothing) {
  // As a quantizer does it: a kernel finds the amax, the MAX over the ranks, a kernel makes the scale of it.
  const OnDevice<std::uint32_t> amax(std::size_t{1}, stream());
  const OnDevice<float> scale(std::size_t{1}, stream());
  nccl().all_reduce(amax.view(), ReduceOp::kMax, kNcclTag);  // connects
  EXPECT_EQ(amax.read()[0], 0xFFFFFFFFU) << "device memory is not initialised";
  fake::set_stream_delay(std::chrono::milliseconds(2));
  const auto calls_of = [](std::initializer_list<const char*> names) {
    int calls = 0;
    for (const char* name : names) calls += fake::calls(name);
    return calls;
  };
  const auto waiting = [&] {
    return calls_of({"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
                     "cudaEventQuery", "cudaStreamQuery", "cudaMemcpy", "cudaMemcpyAsync", "cudaMalloc"});
  };
  const int before = waiting();
  const int reductions = fake::calls("ncclAllReduce");
  CollectiveGuard guard(nccl(), {});
  AmaxReducer reducer(guard);
  const std::vector<MutableTensorView> amaxes = {amax.view()};
  for (int i = 0; i < 3; ++i) {
    fake::enqueue(stream().get(), [&, i] {
      *amax.data() = std::bit_cast<std::uint32_t>(of_rank(static_cast<float>(i + 1)));
    });
    reducer.reduce_tensors(amaxes, kNcclTag);
    fake::enqueue(stream().get(), [&] { *scale.data() = 448.0F / std::bit_cast<float>(*amax.data()); });
  }
  EXPECT_EQ(waiting(), before);
  EXPECT_EQ(fake::calls("ncclAllReduce"), reductions + (size() == 1 ? 0 : 3));
  EXPECT_THAT(scale.read(), ElementsAre(448.0F / (3 * ranks())));
}

TEST_F(NcclDeviceTensors, SeveralAreOneGroup) {
  const OnDevice<std::uint32_t> one(std::vector<std::uint32_t>{static_cast<std::uint32_t>(rank())}, stream());
  const OnDevice<std::uint32_t> two(std::vector<std::uint32_t>{7, static_cast<std::uint32_t>(10 - rank())},
                                    stream());
  const OnDevice<std::uint32_t> three(std::size_t{1}, stream());
  const std::vector<MutableTensorView> all = {one.view(), two.view(), three.view({0})};
  nccl().all_reduce_each(all, ReduceOp::kMax, kNcclTag);
  EXPECT_EQ(fake::calls("ncclGroupStart"), 1);
  EXPECT_EQ(fake::calls("ncclGroupEnd"), 1);
  EXPECT_EQ(fake::calls("ncclAllReduce"), 2);
  EXPECT_THAT(one.read(), ElementsAre(static_cast<std::uint32_t>(size() - 1)));
  EXPECT_THAT(two.read(), ElementsAre(7U, 10U));
}

TEST_F(NcclDeviceTensors, OperationsKeepTheirOrderOverStreams) {
  // Each stream and the host come after the one before, although nobody waits in between.
  fake::set_stream_delay(std::chrono::milliseconds(3));
  const OnDevice<float> io(std::vector{1.0F}, stream());
  {
    CudaStream other = CudaStream::create();
    const OnDevice<float> there(std::size_t{1}, other);
    for (int round = 0; round < 3; ++round) {
      nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
      // On another stream the same memory: only the order of the group makes this come later.
      nccl().all_reduce(
          MutableTensorView(io.data(), DType::kF32, {1}, {DeviceKind::kCuda, 0}, Stream{other.get()}),
          ReduceOp::kMax, kNcclTag);
      Tensor host = Tensor::of<float>({1.0F}, {1});
      nccl().all_reduce(host, ReduceOp::kSum, kNcclTag);
      EXPECT_EQ(host.values<float>()[0], ranks());
    }
    EXPECT_EQ(cudaStreamSynchronize(other.get()), cudaSuccess);
  }
  EXPECT_EQ(io.read()[0], ranks() * ranks() * ranks());
}

TEST_F(NcclDeviceTensors, AStreamMayGoOnceItsWorkIsDone) {
  {
    const CudaStream other = CudaStream::create();
    const OnDevice<float> io(std::vector{1.0F}, other);
    nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
    EXPECT_EQ(io.read()[0], ranks());
  }
  const OnDevice<float> io(std::vector{1.0F}, stream());
  nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
  nccl().barrier(kNcclTag);
  EXPECT_EQ(io.read()[0], ranks());
}

TEST_F(NcclDeviceTensors, SixteenBitMaximaWorkAndSumsAreRefused) {
  const OnDevice<BF16> io(std::vector{to_bf16(of_rank(1))}, stream());
  nccl().all_reduce(io.view(), ReduceOp::kMax, kNcclTag);
  EXPECT_EQ(to_float(io.read()[0]), ranks());
  const OnDevice<BF16> wide(static_cast<std::size_t>(size()), stream());
  const auto refusal = [&](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTensor);
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal([&] { nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag); }),
              HasSubstr("sum of bf16 tensors on the device"));
  EXPECT_THAT(refusal([&] {
                nccl().reduce_scatter(wide.view({size(), 1}), io.view({1, 1}), ReduceOp::kSum, kNcclTag);
              }),
              HasSubstr("sum of bf16 tensors on the device"));
  nccl().barrier(kNcclTag);
}

TEST_F(NcclDeviceTensors, AStreamUnderCaptureIsRefused) {
  const OnDevice<float> io(std::vector{1.0F}, stream());
  fake::set_capturing(stream().get(), true);
  try {
    nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("captured into a CUDA graph"));
  }
  fake::set_capturing(stream().get(), false);
  nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
  EXPECT_EQ(io.read()[0], ranks());
}

TEST_F(NcclDeviceTensors, ACapturedReductionIsDoneWithEachLaunch) {
  const OnDevice<float> io(std::vector{of_rank(1)}, stream());
  const OnDevice<float> other(std::vector{1.0F}, stream());
  nccl().all_reduce(other.view(), ReduceOp::kSum, kNcclTag);  // on this stream, so that it may be captured
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  nccl().all_reduce(io.view(), ReduceOp::kSum, kNcclTag);
  ASSERT_EQ(cudaStreamEndCapture(stream().get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(io.read()[0], of_rank(1)) << "nothing was done yet";
  const float sum = static_cast<float>(size() * (size() + 1)) / 2;
  ASSERT_EQ(cudaGraphLaunch(executable, stream().get()), cudaSuccess);
  EXPECT_EQ(io.read()[0], sum);
  ASSERT_EQ(cudaGraphLaunch(executable, stream().get()), cudaSuccess);
  EXPECT_EQ(io.read()[0], sum * ranks());
  nccl().barrier(kNcclTag);  // on the group's own stream, behind the launches
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(NcclDeviceTensors, AnotherDeviceIsRefused) {
  float memory = 0;
  EXPECT_THROW(nccl().all_reduce(MutableTensorView(&memory, DType::kF32, {1}, {DeviceKind::kCuda, 1}),
                                 ReduceOp::kSum, kNcclTag),
               Error);
}

}  // namespace
}  // namespace amaxscope::testing

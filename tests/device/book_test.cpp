// The programs of docs/cuda.md, as they stand there, on an imitated device.
#include <string>
#include <vector>

#include "features/builtin.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "kernels/gemm.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/device/captured_graph.hpp"
#include "tests/device/emulated_device.hpp"

namespace amaxscope::testing {
namespace {

constexpr std::int64_t M = 32;
constexpr std::int64_t K = 16;

TEST_F(DeviceTest, TensorsAreHandedInAsTheBookSays) {
  connect_emulator();
  const CudaStream queue = CudaStream::create();
  const cudaStream_t cuda_stream = queue.get();
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, M * K * 2), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(pointer, 0x40, M * K * 2, cuda_stream), cudaSuccess);  // 3.0 in bf16
  {
    auto backend = make_cuda_backend({.device = 0, .gemm = make_cublaslt_gemm(0)});
    Stream stream{cuda_stream, backend.get()};                  // a Stream says who computes for its tensors
    Tensor x(DType::kBF16, {M, K}, backend->device(), stream);  // from the backend's pool
    TensorView trainers(pointer, DType::kBF16, {M, K}, backend->device(), stream);  // memory of the program
    copy_tensor(x, trainers);
    Tensor out(DType::kF32, {M, M}, backend->device(), stream);
    const auto quantizer = make_quantizer({.recipe = RecipeKind::kCurrent});
    const auto weight = quantizer->quantize(x.view(), {true, true}, {});

    auto codes = quantizer->quantize(trainers, {true, true}, {});  // amax, MAX over ranks, scale, cast
    gemm(codes->operand(Direction::kRowwise), weight->operand(Direction::kRowwise), out);

    EXPECT_FLOAT_EQ(to_host(out.view()).values<float>()[0], 9.0F * static_cast<float>(K));
    ASSERT_EQ(cudaStreamSynchronize(cuda_stream), cudaSuccess);
  }
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);
}

/// How often a loop goes round.
struct Times {
  int left;
  explicit operator bool() { return left-- > 0; }
};

TEST_F(DeviceTest, AStepIsCapturedAndReplayedAsTheBookSays) {
  const EmulatedDevice device;
  const Stream stream = device.stream();
  const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
  std::vector<double> logged;
  SessionOptions options;
  options.config_text =
      "looks: {enabled: True, observe: x, transformer_engine: {LogTensorStats: {enabled: True, stats: "
      "[cur_amax]}}}";
  options.extra_sinks.push_back(
      make_callback_sink([&](const StatRecord& record) { logged.push_back(record.stats.at(0).value); },
                         [](std::int64_t, const Scalars&) {}, [](const Finding&) {}));
  {
    DebugSession session(builtin_features(), {}, std::move(options));
    const Tensor x = device.put(Tensor::of({1.0F, -2.0F}, {1, 2}).view());
    const Tensor dx = device.put(Tensor::of({4.0F, -3.0F}, {1, 2}).view());
    const auto forward = [&] { session.observe("x", "residual", x.view(), Layout::kReplicated); };
    const auto backward = [&] { session.observe("dx", "residual", dx.view(), Layout::kReplicated); };
    const auto capture_again = [] { FAIL() << "nothing that was captured has changed"; };
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    Times training{3};
    // Some steps as they are: layers and tensors are registered, ranks compare names, NCCL connects.
    forward();
    backward();
    session.step();

    session.begin_capture(stream);  // of the step's tensors, with its backend
    cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeGlobal);
    forward();
    backward();  // hooks record
    cudaStreamEndCapture(cuda_stream, &graph);
    session.end_capture();
    cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch);
    while (training) {
      if (session.needs_capture()) capture_again();
      session.before_replay();                   // and again before each further launch in this iteration
      cudaGraphLaunch(executable, cuda_stream);  // the stream that was captured
      session.step();
    }

    device.finish();
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_THAT(logged, ::testing::ElementsAre(2, 4, 2, 4, 2, 4, 2, 4));
}

}  // namespace
}  // namespace amaxscope::testing

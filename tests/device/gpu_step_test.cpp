// What needs cuBLASLt and NCCL on a real device: products within bounds, a small step, NCCL with one rank,
// and what a step calls: nothing between amax and cast that waits, nothing for an idle debug runtime.
// Skipped without a device. Lines "figure" are for the table of launch/gpu_check.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "collectives/loopback_communicator.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "features/builtin.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "kernels/dequantize.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/gpu_fixture.hpp"
#include "tests/device/small_step.hpp"
#include "tests/kernels/values.hpp"
#ifdef AMAXSCOPE_TEST_CUPTI
#include "tests/device/api_trace.hpp"
#endif

namespace amaxscope::testing {
namespace {

class GpuStep : public Gpu {
 protected:
  GpuStep()
      : Gpu({.device = 0, .gemm = make_cublaslt_gemm(0), .warn = [this](const std::string& text) {
               said_.push_back(text);
             }}) {}
  [[nodiscard]] const std::vector<std::string>& said() const { return said_; }
  void finish() const {
    ASSERT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream().handle)), cudaSuccess);
  }
  static constexpr RecipeKind kRecipes[] = {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock,
                                            RecipeKind::kNvfp4};

 private:
  std::vector<std::string> said_;
};

/// |difference| <= bound * the largest magnitude, element by element.
void expect_close(const Tensor& actual, const Tensor& expected, double bound) {
  double largest = 0;
  for (const float value : expected.values<float>()) largest = std::max(largest, std::abs(double{value}));
  for (std::size_t i = 0; i < expected.values<float>().size(); ++i) {
    ASSERT_NEAR(actual.values<float>()[i], expected.values<float>()[i], bound * largest) << i;
  }
}

/// With NCCL of one rank.
void alone(const std::function<void(Communicator&)>& run) {
  run_loopback_ranks(1, [&](Communicator& loopback) {
    const auto nccl = make_nccl_communicator(
        loopback, {.deadline = std::chrono::seconds(60), .teardown = std::chrono::seconds(10)});
    run(*nccl);
  });
}

TEST_F(GpuStep, ProductsOfEveryFormatAreWithinBoundsOfTheCpu) {
  // Codes are equal, so only sums differ; those of Hopper's FP8 units keep 14 bits or so.
  const Tensor x = test::converted(test::sample_tensor({256, 384}, 21), DType::kBF16);
  const Tensor w = test::converted(test::sample_tensor({256, 384}, 22), DType::kBF16);
  for (const RecipeKind recipe : kRecipes) {
    const auto codes = [&](const TensorView& values, TensorKind kind) {
      return make_quantizer({.recipe = recipe, .tensor = kind, .name = "fc1"})
          ->quantize(values, {true, true}, {});
    };
    const auto x_cpu = codes(x.view(), TensorKind::kActivation);
    const auto w_cpu = codes(w.view(), TensorKind::kActivation);
    const auto x_gpu = codes(put(x.view()).view(), TensorKind::kActivation);
    const auto w_gpu = codes(put(w.view()).view(), TensorKind::kActivation);
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const std::int64_t extent = direction == Direction::kRowwise ? 256 : 384;
      Tensor expected(DType::kF32, {extent, extent});
      gemm(x_cpu->operand(direction), w_cpu->operand(direction), expected);
      Tensor actual = tensor(DType::kF32, {extent, extent});
      gemm(x_gpu->operand(direction), w_gpu->operand(direction), actual);
      expect_close(to_host(actual.view()), expected, 0.002);
    }
  }
  for (const std::string& text : said()) fmt::print("figure\tnot multiplied as it is\t{}\n", text);
}

TEST_F(GpuStep, AStepIsWithinRoundingOfTheCpu) {
  alone([&](Communicator& nccl) {
    for (const RecipeKind recipe : kRecipes) {
      SmallModel on_cpu(
          recipe, nccl, [](const TensorView& host) { return to_host(host); }, nullptr);
      SmallModel on_gpu(
          recipe, nccl, [&](const TensorView& host) { return put(host); }, nullptr);
      const SmallModel::Gradients expected = on_cpu.step();
      const SmallModel::Gradients actual = on_gpu.step();
      // The first product is of equal codes; later ones may round to a neighbouring code.
      expect_close(to_host(actual.y.view()), expected.y, recipe == RecipeKind::kNvfp4 ? 0.1 : 0.02);
      expect_close(to_host(actual.dw1.view()), expected.dw1, recipe == RecipeKind::kNvfp4 ? 0.2 : 0.05);
    }
  });
}

TEST_F(GpuStep, NcclOfOneRankGivesWhatItGot) {
  alone([&](Communicator& nccl) {
    const Tensor bits = Tensor::of<std::uint32_t>({0x7F800000U, 1U, 0U, 0x3F800000U}, {4});
    Tensor there = put(bits.view());
    nccl.all_reduce(there, ReduceOp::kMax, {.what = "amax"});
    EXPECT_EQ(bytes_of(there.view()), bytes_of(bits.view()));
    const Tensor sums = Tensor::of<double>({0x1p-1074, 1.5, -3.0}, {3});
    Tensor sums_there = put(sums.view());
    nccl.all_reduce(sums_there, ReduceOp::kSum, {.what = "sums"});
    EXPECT_EQ(bytes_of(sums_there.view()), bytes_of(sums.view()));
  });
}

#ifdef AMAXSCOPE_TEST_CUPTI

TEST_F(GpuStep, TraceOfAmaxMaxScaleAndCastHasNoWait) {
  constexpr int kRounds = 20;
  alone([&](Communicator& nccl) {
    const auto quantizer = make_quantizer({.recipe = RecipeKind::kCurrent,
                                           .tensor = TensorKind::kActivation,
                                           .name = "fc1",
                                           .reduce_amaxes = [&](const MutableTensorView& amaxes) {
                                             nccl.all_reduce(amaxes, ReduceOp::kMax, {.what = "amax"});
                                           }});
    const Tensor x = put(test::converted(test::sample_tensor({512, 512}, 23), DType::kBF16).view());
    for (int i = 0; i < 3; ++i) static_cast<void>(quantizer->quantize(x.view(), {true, true}, {}));
    finish();
    ApiTrace trace;
    finish();
    ASSERT_GE(trace.waits(), 1) << "a trace that sees a wait";
    trace.start();
    for (int i = 0; i < kRounds; ++i) static_cast<void>(quantizer->quantize(x.view(), {true, true}, {}));
    EXPECT_EQ(trace.waits(), 0);
    EXPECT_GE(trace.calls().size(), std::size_t{3 * kRounds});
    fmt::print("figure\twaits of the host in {} times amax, MAX over NCCL, scale, cast\t{}\n", kRounds,
               trace.waits());
    finish();
  });
}

TEST_F(GpuStep, TraceOfAnIdleDebugRuntimeIsThatWithoutOne) {
  alone([&](Communicator& nccl) {
    const auto calls_of_step = [&](bool debugging) {
      std::unique_ptr<DebugSession> session;
      if (debugging) {
        SessionOptions options;
        options.config_text = std::string(kIdle);
        SessionGroups groups;
        groups.world = groups.tp = groups.stage = &nccl;
        session = std::make_unique<DebugSession>(builtin_features(), groups, std::move(options));
      }
      std::vector<std::string> calls;
      {
        SmallModel model(
            RecipeKind::kCurrent, nccl, [&](const TensorView& host) { return put(host); }, session.get());
        for (int i = 0; i < 4; ++i) {
          ApiTrace trace;
          const SmallModel::Gradients gradients = model.step();
          calls = trace.calls();
          finish();
          if (session != nullptr) session->step();
        }
      }
      if (session != nullptr) session->close();
      return calls;
    };
    const std::vector<std::string> without = calls_of_step(false);
    const std::vector<std::string> with = calls_of_step(true);
    EXPECT_GT(without.size(), 20U);
    EXPECT_EQ(with, without);
    fmt::print("figure\tcalls of CUDA in a step, without and with an idle debug runtime\t{}, {}\n",
               without.size(), with.size());
  });
}

#endif

}  // namespace
}  // namespace amaxscope::testing

// The device path on a real device: codes of every bf16 and fp16 number through the device's conversions,
// quantizers, products within bounds, and NCCL with one rank. Skipped without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "collectives/loopback_communicator.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_handles.hpp"
#include "kernels/cast.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/dequantize.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/small_step.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

class Gpu : public ::testing::Test {
 protected:
  [[nodiscard]] Stream stream() const { return {stream_.get(), backend_.get()}; }
  [[nodiscard]] Tensor tensor(DType type, Shape shape) const {
    return {type, shape, backend_->device(), stream()};
  }
  [[nodiscard]] Tensor put(const TensorView& host) const {
    return to_device(host, TensorView(nullptr, DType::kU8, Shape{0}, backend_->device(), stream()));
  }

 private:
  CudaStream stream_ = CudaStream::create();
  std::unique_ptr<DeviceBackend> backend_ = make_cuda_backend({.device = 0, .gemm = make_cublaslt_gemm(0)});
};

std::vector<std::uint8_t> bytes_of(const TensorView& tensor) {
  const Tensor here = to_host(tensor);
  const auto* first = static_cast<const std::uint8_t*>(here.view().data());
  return {first, first + here.bytes()};
}

TEST_F(Gpu, EveryNumberOfSixteenBitsHasTheCodeOfTheCpu) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    Tensor x(type, {65536});
    auto* const bits = static_cast<std::uint16_t*>(x.mutable_view().data());
    for (std::size_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Tensor there = put(x.view());
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      for (const float scale : {1.0F, 0x1p-9F, 3.0F}) {
        const Tensor factor = Tensor::of({scale}, {1});
        Tensor expected(format, {65536});
        cast_to_fp8(x, factor, expected);
        Tensor actual = tensor(format, {65536});
        cast_to_fp8(there, put(factor.view()), actual);
        EXPECT_EQ(bytes_of(actual.view()), bytes_of(expected.view()))
            << to_string(type) << ' ' << to_string(format);
      }
    }
  }
}

TEST_F(Gpu, SinglesOfEveryExponentHaveTheCodeOfTheCpu) {
  // All signs and exponents with the 13 highest bits of the mantissa, and the two neighbours of each: every
  // tie.
  Tensor x(DType::kF32, {3 << 22});
  auto* const bits = static_cast<std::uint32_t*>(x.mutable_view().data());
  for (std::uint32_t i = 0; i < 1U << 22; ++i) {
    for (std::uint32_t k = 0; k < 3; ++k) bits[3 * i + k] = (i << 10) + k - 1;
  }
  const Tensor there = put(x.view());
  const Tensor factor = Tensor::of({1.0F}, {1});
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    Tensor expected(format, x.shape());
    cast_to_fp8(x, factor, expected);
    Tensor actual = tensor(format, x.shape());
    cast_to_fp8(there, put(factor.view()), actual);
    EXPECT_EQ(bytes_of(actual.view()), bytes_of(expected.view())) << to_string(format);
  }
}

TEST_F(Gpu, QuantizersMakeTheCodesOfTheCpu) {
  const Tensor x = test::converted(test::sample_tensor({256, 384}, 11), DType::kBF16);
  const Tensor there = put(x.view());
  for (const RecipeKind recipe :
       {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    for (const TensorKind kind : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
      const QuantizerRequest request{.recipe = recipe, .tensor = kind, .name = "fc1"};
      const auto expected = make_quantizer(request)->quantize(x.view(), {true, true}, {});
      const auto actual = make_quantizer(request)->quantize(there.view(), {true, true}, {});
      for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
        EXPECT_EQ(bytes_of(actual->operand(direction).data), bytes_of(expected->operand(direction).data))
            << to_string(recipe) << ' ' << to_string(kind) << ' ' << to_string(direction);
        EXPECT_EQ(bytes_of(actual->dequantize(DType::kF32, direction).view()),
                  bytes_of(expected->dequantize(DType::kF32, direction).view()))
            << to_string(recipe) << ' ' << to_string(kind) << ' ' << to_string(direction);
      }
    }
  }
}

/// |difference| <= bound * |a| |b|, element by element, for sums of `depth` products in f32.
void expect_close(const Tensor& actual, const Tensor& expected, double bound) {
  double largest = 0;
  for (const float value : expected.values<float>()) largest = std::max(largest, std::abs(double{value}));
  for (std::size_t i = 0; i < expected.values<float>().size(); ++i) {
    ASSERT_NEAR(actual.values<float>()[i], expected.values<float>()[i], bound * largest) << i;
  }
}

TEST_F(Gpu, AStepIsWithinRoundingOfTheCpuAndNcclWorksWithOneRank) {
  run_loopback_ranks(1, [&](Communicator& alone) {
    const auto nccl = make_nccl_communicator(
        alone, {.deadline = std::chrono::seconds(60), .teardown = std::chrono::seconds(10)});
    for (const RecipeKind recipe :
         {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
      SmallModel on_cpu(
          recipe, *nccl, [](const TensorView& host) { return to_host(host); }, nullptr);
      SmallModel on_gpu(
          recipe, *nccl, [&](const TensorView& host) { return put(host); }, nullptr);
      const SmallModel::Gradients expected = on_cpu.step();
      const SmallModel::Gradients actual = on_gpu.step();
      // The first product is of equal codes; later ones may round to a neighbouring code.
      expect_close(to_host(actual.y.view()), expected.y, recipe == RecipeKind::kNvfp4 ? 0.1 : 0.02);
      expect_close(to_host(actual.dw1.view()), expected.dw1, recipe == RecipeKind::kNvfp4 ? 0.2 : 0.05);
    }
  });
}

}  // namespace
}  // namespace amaxscope::testing

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  const amaxscope::CudaPresence presence = amaxscope::cuda_presence();
  if (presence.devices == 0) {
    constexpr int kSkipped = 77;
    std::printf("SKIPPED: no CUDA device: %s\n", presence.why_none.c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

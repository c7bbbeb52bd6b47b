// Products on a device through cuBLASLt (imitated): what goes to it as it is, what is decoded before, what is
// refused, and that each gives what the CPU gives.
#include "kernels/gemm.hpp"
#include "core/error.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/fake/fake_cublaslt.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceGemmTest : public DeviceTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake::live_cublas_objects(), 0U);
    DeviceTest::TearDown();
  }
  CudaBackendOptions options(UnsupportedGemm unsupported = UnsupportedGemm::kDequantize) {
    return {.device = 0,
            .gemm = make_cublaslt_gemm(0),
            .unsupported = unsupported,
            .warn = [this](const std::string& text) { said_.push_back(text); }};
  }
  std::vector<std::string> said_;
};

std::shared_ptr<QuantizedTensor> codes_of(const TensorView& x, RecipeKind recipe, TensorKind tensor) {
  return make_quantizer({.recipe = recipe, .tensor = tensor, .name = "fc1"})->quantize(x, {true, true}, {});
}

TEST_F(DeviceGemmTest, HandPicked) {
  const EmulatedDevice device(options());
  const Tensor a = device.put(Tensor::of({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}, {2, 3}).view());
  const Tensor b = device.put(Tensor::of({1.0F, 0.0F, -1.0F, 2.0F, 1.0F, 0.0F}, {2, 3}).view());
  Tensor out = device.tensor(DType::kF32, {2, 2});
  gemm({a.view()}, {b.view()}, out);
  EXPECT_THAT(to_host(out.view()).values<float>(), ElementsAre(-2.0F, 4.0F, -2.0F, 13.0F));
  gemm({a.view()}, {b.view()}, out, 1.0F);
  EXPECT_THAT(to_host(out.view()).values<float>(), ElementsAre(-4.0F, 8.0F, -4.0F, 26.0F));
  // [3, 2] in memory, used as its transpose.
  Tensor square = device.tensor(DType::kF32, {3, 3});
  gemm({a.view(), true}, {b.view(), true}, square);
  EXPECT_THAT(to_host(square.view()).values<float>(), ElementsAre(9, 4, -1, 12, 5, -2, 15, 6, -3));
}

TEST_F(DeviceGemmTest, EveryOrientationAndTypeIsThatOfTheCpu) {
  const EmulatedDevice device(options());
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool turn_a : {false, true}) {
      for (const bool turn_b : {false, true}) {
        const Tensor a = test::converted(test::sample_tensor(turn_a ? Shape{5, 7} : Shape{7, 5}, 1), type);
        const Tensor b = test::converted(test::sample_tensor(turn_b ? Shape{5, 3} : Shape{3, 5}, 2), type);
        const Tensor a_there = device.put(a.view());
        const Tensor b_there = device.put(b.view());
        for (const DType result : {type, DType::kF32}) {
          Tensor expected(result, {7, 3});
          gemm({a.view(), turn_a}, {b.view(), turn_b}, expected);
          Tensor actual = device.tensor(result, {7, 3});
          gemm({a_there.view(), turn_a}, {b_there.view(), turn_b}, actual);
          EXPECT_TRUE(same(actual.view(), expected.view())) << to_string(type) << turn_a << turn_b;
        }
      }
    }
  }
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(DeviceGemmTest, Fp8CodesGoAsTheyAreAndTheHostDoesNotSeeTheirScales) {
  const EmulatedDevice device(options());
  const Tensor x = test::sample_tensor({32, 64}, 3);
  const Tensor w = test::sample_tensor({48, 64}, 4);
  const auto x_cpu = codes_of(x.view(), RecipeKind::kCurrent, TensorKind::kGradient);
  const auto w_cpu = codes_of(w.view(), RecipeKind::kCurrent, TensorKind::kWeight);
  Tensor expected(DType::kF32, {32, 48});
  gemm(x_cpu->operand(Direction::kRowwise), w_cpu->operand(Direction::kRowwise), expected);

  const Tensor x_there = device.put(x.view());
  const Tensor w_there = device.put(w.view());
  const int waits = fake::host_waits();
  const auto x_codes = codes_of(x_there.view(), RecipeKind::kCurrent, TensorKind::kGradient);
  const auto w_codes = codes_of(w_there.view(), RecipeKind::kCurrent, TensorKind::kWeight);
  Tensor actual = device.tensor(DType::kF32, {32, 48});
  gemm(x_codes->operand(Direction::kRowwise), w_codes->operand(Direction::kRowwise), actual);
  EXPECT_EQ(fake::host_waits(), waits);
  EXPECT_EQ(fake::calls("cublasLtMatmul"), 1);
  EXPECT_TRUE(same(actual.view(), expected.view()));
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(DeviceGemmTest, WhatIsNotMultipliedAsItIsIsDecodedAndSaidOnce) {
  const EmulatedDevice device(options());
  const Tensor x = test::sample_tensor({32, 64}, 5);
  const Tensor w = test::sample_tensor({32, 64}, 6);
  const Tensor x_there = device.put(x.view());
  const Tensor w_there = device.put(w.view());
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const auto x_cpu = codes_of(x.view(), recipe, TensorKind::kActivation);
    const auto w_cpu = codes_of(w.view(), recipe, TensorKind::kActivation);
    const auto x_codes = codes_of(x_there.view(), recipe, TensorKind::kActivation);
    const auto w_codes = codes_of(w_there.view(), recipe, TensorKind::kActivation);
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const std::int64_t extent = direction == Direction::kRowwise ? 32 : 64;
      Tensor expected(DType::kF32, {extent, extent});
      gemm(x_cpu->operand(direction), w_cpu->operand(direction), expected);
      Tensor actual = device.tensor(DType::kF32, {extent, extent});
      gemm(x_codes->operand(direction), w_codes->operand(direction), actual);
      EXPECT_TRUE(same(actual.view(), expected.view())) << to_string(recipe) << ' ' << to_string(direction);
    }
  }
  EXPECT_THAT(said_, ElementsAre(HasSubstr("block-scaled codes are not multiplied as they are")));

  // FP8 of an odd size, and codes with high precision.
  const Tensor odd = device.put(test::sample_tensor({3, 5}, 7).view());
  const auto odd_codes = codes_of(odd.view(), RecipeKind::kCurrent, TensorKind::kActivation);
  Tensor actual = device.tensor(DType::kBF16, {3, 3});
  gemm(odd_codes->operand(Direction::kRowwise), {odd.view()}, device.tensor(DType::kF32, {3, 3}));
  EXPECT_EQ(said_.size(), 2U);
  gemm(odd_codes->operand(Direction::kRowwise), odd_codes->operand(Direction::kRowwise), actual);
  const Tensor host = to_host(odd_codes->dequantize(DType::kF32, Direction::kRowwise).view());
  Tensor expected(DType::kF32, {3, 3});
  gemm({host.view()}, {host.view()}, expected);
  Tensor squares = device.tensor(DType::kF32, {3, 3});
  gemm(odd_codes->operand(Direction::kRowwise), odd_codes->operand(Direction::kRowwise), squares);
  EXPECT_TRUE(same(squares.view(), expected.view()));
  EXPECT_TRUE(same(actual.view(), test::converted(expected.view(), DType::kBF16).view())) << "rounded once";
}

TEST_F(DeviceGemmTest, WhatIsNotMultipliedAsItIsIsRefusedWhereThatIsWanted) {
  const EmulatedDevice device(options(UnsupportedGemm::kRefuse));
  const Tensor x = device.put(test::sample_tensor({32, 32}, 5).view());
  const auto codes = codes_of(x.view(), RecipeKind::kMxfp8, TensorKind::kActivation);
  Tensor out = device.tensor(DType::kF32, {32, 32});
  const GemmOperand operand = codes->operand(Direction::kRowwise);
  try {
    gemm(operand, operand, out);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_THAT(error.what(), HasSubstr("gemm on cuda:0: block-scaled codes are not multiplied as they are"));
  }
  EXPECT_EQ(fake::calls("cublasLtMatmul"), 0);
}

TEST_F(DeviceGemmTest, WithoutALibraryThereIsNoProduct) {
  const EmulatedDevice device;
  const Tensor x = device.put(test::sample_tensor({2, 2}, 5).view());
  EXPECT_THROW(gemm({x.view()}, {x.view()}, device.tensor(DType::kF32, {2, 2})), Error);
}

TEST_F(DeviceGemmTest, NothingOfAnErrorIsLeft) {
  for (const char* function : {"cublasLtCreate", "cublasLtMatrixLayoutCreate", "cublasLtMatmulDescCreate",
                               "cublasLtMatmulDescSetAttribute", "cublasLtMatmulPreferenceCreate",
                               "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
                               "cublasLtMatmul", "cudaMallocFromPoolAsync", "cudaLaunchKernel"}) {
    int failed = 0;
    for (int nth = 1; nth <= 6; ++nth) {
      fake::fail_at(function, nth, 13);  // CUBLAS_STATUS_EXECUTION_FAILED, and an error of CUDA as well
      try {
        const EmulatedDevice device(options());
        const Tensor x = device.put(test::sample_tensor({16, 16}, 5).view());
        const auto codes = codes_of(x.view(), RecipeKind::kCurrent, TensorKind::kActivation);
        const GemmOperand operand = codes->operand(Direction::kRowwise);
        Tensor out = device.tensor(DType::kF32, {16, 16});
        gemm(operand, operand, out);
      } catch (const Error&) {
        ++failed;
      }
    }
    EXPECT_GE(failed, 1) << function;
    fake::reset();
  }
}

}  // namespace
}  // namespace amaxscope::testing

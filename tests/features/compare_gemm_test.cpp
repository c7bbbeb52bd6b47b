// CompareGemm where it needs no layer: rotated operands, and what a layer does not hand in.
#include "features/compare_gemm.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "kernels/gemm_error.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/features/feature_support.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope {
namespace {

constexpr std::int64_t kSide = 32;

Tensor noise(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor x(DType::kF32, {kSide, kSide});
  for (float& value : x.values<float>()) value = normal(random);
  return x;
}

std::shared_ptr<QuantizedTensor> nvfp4(const Tensor& x, TensorKind tensor) {
  QuantizerRequest request;
  request.recipe = RecipeKind::kNvfp4;
  request.tensor = tensor;
  request.name = "fc1";
  return make_quantizer(request)->quantize(x.view(), {.rowwise = true, .columnwise = true}, {});
}

/// a^T b by loops.
std::vector<double> transposed_product(const Tensor& a, const Tensor& b) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < kSide; ++i) {
    for (std::int64_t j = 0; j < kSide; ++j) {
      double sum = 0;
      for (std::int64_t m = 0; m < kSide; ++m) {
        sum += static_cast<double>(a.values<float>()[static_cast<std::size_t>(m * kSide + i)]) *
               static_cast<double>(b.values<float>()[static_cast<std::size_t>(m * kSide + j)]);
      }
      result.push_back(sum);
    }
  }
  return result;
}

// The wgrad of NVFP4 multiplies two rotated factors. Neither fits the other's original; turned back they do.
TEST(CompareGemm, RotatedOperandsAreTurnedBack) {
  const Tensor gradient = noise(1);
  const Tensor activation = noise(2);
  const auto gradient_codes = nvfp4(gradient, TensorKind::kGradient);
  const auto activation_codes = nvfp4(activation, TensorKind::kActivation);
  const GemmOperand a = gradient_codes->operand(Direction::kColumnwise);
  const GemmOperand b = activation_codes->operand(Direction::kColumnwise);
  ASSERT_TRUE(a.blocks && a.blocks->rotated && b.blocks && b.blocks->rotated);
  Tensor result(DType::kF32, {kSide, kSide});
  gemm(a, b, result);
  const GemmError error =
      gemm_error(a, b, {gradient.view(), true, 1.0F}, {activation.view(), true, 1.0F}, result.view());

  const Tensor decoded_a = gradient_codes->dequantize(DType::kF32, Direction::kColumnwise);
  const Tensor decoded_b = activation_codes->dequantize(DType::kF32, Direction::kColumnwise);
  const auto reference = transposed_product(gradient, activation);
  const auto with_a = transposed_product(decoded_a, activation);
  const auto with_both = transposed_product(decoded_a, decoded_b);
  double squares = 0;
  double from_a = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    squares += (with_both[i] - reference[i]) * (with_both[i] - reference[i]);
    from_a += (with_both[i] - reference[i]) * (with_a[i] - reference[i]);
  }
  EXPECT_NEAR(error.error_squares, squares, 1e-4 * squares);
  EXPECT_NEAR(error.from_a, from_a, 1e-3 * squares);
  EXPECT_NEAR(error.from_accumulation, 0, 1e-3 * squares);
  EXPECT_NEAR(error.from_a + error.from_b + error.from_rest + error.from_accumulation, error.error_squares,
              1e-9 * squares);
  EXPECT_GT(error.from_a, 0.2 * squares);
  EXPECT_GT(error.from_b, 0.2 * squares);
}

TEST(CompareGemm, CountsNothingWithoutBothOriginals) {
  const auto collected = testing::run_sessions(
      {.ranks = 1, .yaml = testing_support::section("s", "{CompareGemm: {enabled: True, gemms: [fprop]}}")},
      [](testing::SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
        DebugQuantizer* output = handle.quantizer(TensorKind::kOutput);
        ASSERT_NE(output, nullptr);
        EXPECT_TRUE(output->needs_gemm_inputs());
        EXPECT_EQ(handle.quantizer(TensorKind::kWgrad), nullptr);  // wgrad is not listed
        Tensor y(DType::kF32, {1, 1});
        output->process_gemm_output(y, {});
        const Tensor x = Tensor::of<float>({2}, {1, 1});
        GemmInputs inputs{.a = {x.view(), false, 1.0F}, .b = {x.view(), false, 1.0F}};
        inputs.original_a = x.view();
        output->process_gemm_output(y, {}, &inputs);  // without the weight's
        self.session.step();
        inputs.original_b = x.view();
        y.values<float>()[0] = 5;
        handle.quantizer(TensorKind::kOutput)->process_gemm_output(y, {}, &inputs);
        self.session.step();
      });
  const auto records = collected->of(0, "a.fc1", "output");
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].iteration, 1);
  EXPECT_EQ(testing::stat(records[0], "relative_error"), 0.25);
  EXPECT_EQ(testing::stat(records[0], "error_from_accumulation%"), 100.0);
}

}  // namespace
}  // namespace amaxscope

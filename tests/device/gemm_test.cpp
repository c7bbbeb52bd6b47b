// Products on a device through cuBLASLt (imitated): what goes to it as it is, what is decoded before, what is
// refused, and that each gives what the CPU gives.
#include "kernels/gemm.hpp"

#include <cublasLt.h>

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/fake/fake_cublaslt.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::_;
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

/// The same product there and on the CPU.
struct Pair {
  Tensor actual;
  Tensor expected;
};
class DeviceBlockGemmTest : public DeviceGemmTest {
 protected:
  /// Of `recipe`, x [96, 160] times w [rows, 160] along their rows, or their transposes along their columns.
  Pair product(const EmulatedDevice& device, RecipeKind recipe, Direction direction, TensorKind second,
               DType result = DType::kF32, float beta = 0.0F) {
    const bool rowwise = direction == Direction::kRowwise;
    const Tensor x = test::sample_tensor({96, 160}, 5);
    const Tensor w = test::sample_tensor(rowwise ? Shape{64, 160} : Shape{96, 64}, 6);
    const auto x_cpu = codes_of(x.view(), recipe, TensorKind::kActivation);
    const auto w_cpu = codes_of(w.view(), recipe, second);
    const auto x_codes = codes_of(device.put(x.view()).view(), recipe, TensorKind::kActivation);
    const auto w_codes = codes_of(device.put(w.view()).view(), recipe, second);
    const Shape shape{rowwise ? 96 : 160, 64};
    const Tensor before = test::converted(test::sample_tensor(shape, 7), result);
    Pair pair{device.put(before.view()), to_host(before.view())};
    gemm(x_cpu->operand(direction), w_cpu->operand(direction), pair.expected, beta);
    const int waits = fake::host_waits();
    gemm(x_codes->operand(direction), w_codes->operand(direction), pair.actual, beta);
    EXPECT_EQ(fake::host_waits(), waits);
    return pair;
  }
  static constexpr std::array kBoth = {Direction::kRowwise, Direction::kColumnwise};
};

TEST_F(DeviceBlockGemmTest, Mxfp8GoesAsItIsFromBlackwellOn) {
  for (const int capability : {100, 103, 120}) {
    fake::set_compute_capability(capability);
    const EmulatedDevice device(options());
    for (const Direction direction : kBoth) {
      for (const TensorKind second : {TensorKind::kWeight, TensorKind::kGradient}) {
        const Pair plain = product(device, RecipeKind::kMxfp8, direction, second);
        EXPECT_TRUE(same(plain.actual.view(), plain.expected.view())) << capability << to_string(direction);
        const Pair added = product(device, RecipeKind::kMxfp8, direction, second, DType::kF32, 1.0F);
        EXPECT_TRUE(same(added.actual.view(), added.expected.view())) << capability << to_string(direction);
      }
    }
  }
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(DeviceBlockGemmTest, Nvfp4GoesAsItIsFromBlackwellOn) {
  for (const int capability : {100, 120}) {
    fake::set_compute_capability(capability);
    const EmulatedDevice device(options());
    for (const Direction direction : kBoth) {
      for (const float beta : {0.0F, 1.0F}) {
        const Pair pair =
            product(device, RecipeKind::kNvfp4, direction, TensorKind::kActivation, DType::kF32, beta);
        // The second level of scales is applied to the sum, and not to each element.
        const Tensor actual = to_host(pair.actual.view());
        double largest = 0;
        for (const float value : pair.expected.values<float>())
          largest = std::max(largest, std::abs(double{value}));
        for (std::size_t i = 0; i < actual.values<float>().size(); ++i) {
          ASSERT_NEAR(actual.values<float>()[i], pair.expected.values<float>()[i], 0x1p-20 * largest)
              << capability << to_string(direction) << i;
        }
      }
    }
  }
  EXPECT_THAT(said_, ElementsAre());
}

TEST_F(DeviceBlockGemmTest, Fp8BlocksGoAsTheyAreOnHopper) {
  const EmulatedDevice device(options());
  for (const Direction direction : kBoth) {
    // Squares and stretches; gradients are e4m3, too.
    for (const TensorKind second : {TensorKind::kWeight, TensorKind::kGradient}) {
      const Pair pair = product(device, RecipeKind::kBlock, direction, second);
      EXPECT_TRUE(same(pair.actual.view(), pair.expected.view())) << to_string(direction);
    }
  }
  EXPECT_THAT(said_, ElementsAre());

  const Tensor w = device.put(test::sample_tensor({128, 128}, 6).view());
  const auto squares = codes_of(w.view(), RecipeKind::kBlock, TensorKind::kWeight);
  const GemmOperand operand = squares->operand(Direction::kRowwise);
  gemm(operand, operand, device.tensor(DType::kF32, {128, 128}));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("128 x 128 by others of 128 x 128; such operands are decoded")));
}

TEST_F(DeviceBlockGemmTest, WhatADeviceOrLibraryDoesNotHaveIsSaidAndDecoded) {
  const auto reason = [&](int capability, RecipeKind recipe) {
    fake::set_compute_capability(capability);
    said_.clear();
    const EmulatedDevice device(options());
    const Pair pair = product(device, recipe, Direction::kColumnwise, TensorKind::kActivation);
    EXPECT_EQ(static_cast<bool>(same(pair.actual.view(), pair.expected.view())), !said_.empty())
        << "decoded as on the CPU, or a sum with one scale: " << capability << to_string(recipe);
    return said_.size() == 1 ? said_[0] : fmt::format("{} said", said_.size());
  };
  EXPECT_THAT(reason(89, RecipeKind::kBlock), HasSubstr("8.9 does not multiply FP8 blocks"));
  EXPECT_THAT(reason(100, RecipeKind::kBlock), HasSubstr("10.0 does not multiply FP8 blocks"));
  EXPECT_THAT(reason(90, RecipeKind::kMxfp8), HasSubstr("9.0 does not multiply MXFP8"));
  EXPECT_THAT(reason(90, RecipeKind::kNvfp4), HasSubstr("9.0 does not multiply NVFP4"));
  EXPECT_EQ(reason(100, RecipeKind::kNvfp4), "0 said");
  fake::set_cublaslt_version(120803);
  EXPECT_THAT(reason(100, RecipeKind::kNvfp4),
              HasSubstr("cuBLASLt 12.8 does not multiply block-scaled codes"));
  fake::set_cublaslt_version(130100);

  // No algorithm for sizes that the manual allows: CUBLAS_STATUS_NOT_SUPPORTED.
  fake::set_compute_capability(100);
  said_.clear();
  const EmulatedDevice device(options());
  fake::fail_at("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
  const Pair pair = product(device, RecipeKind::kMxfp8, Direction::kRowwise, TensorKind::kActivation);
  EXPECT_TRUE(same(pair.actual.view(), pair.expected.view()));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("cuBLASLt has no algorithm for 96 x 64 x 160 of e4m3 and e4m3")));
}

TEST_F(DeviceBlockGemmTest, FactorsOfDifferentFormatsAndWrongDirectionsAreDecoded) {
  fake::set_compute_capability(100);
  const EmulatedDevice device(options());
  const Tensor x = test::sample_tensor({64, 64}, 8);
  const Tensor there = device.put(x.view());
  const auto mxfp8 = codes_of(there.view(), RecipeKind::kMxfp8, TensorKind::kActivation);
  const auto nvfp4 = codes_of(there.view(), RecipeKind::kNvfp4, TensorKind::kActivation);
  const auto current = codes_of(there.view(), RecipeKind::kCurrent, TensorKind::kActivation);
  Tensor out = device.tensor(DType::kF32, {64, 64});
  const auto rowwise = [](const auto& codes) { return codes->operand(Direction::kRowwise); };
  gemm(rowwise(mxfp8), rowwise(nvfp4), out);
  gemm(rowwise(mxfp8), rowwise(current), out);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("block-scaled codes times others of another format")));
  // The transpose of codes whose scales run along the rows: as the CPU has it.
  GemmOperand turned = rowwise(mxfp8);
  turned.transposed = true;
  gemm(turned, turned, out);
  EXPECT_THAT(said_, ElementsAre(_, HasSubstr("whose scales do not run along the depth")));
  const auto codes_here = codes_of(x.view(), RecipeKind::kMxfp8, TensorKind::kActivation);
  GemmOperand on_cpu = rowwise(codes_here);
  on_cpu.transposed = true;
  Tensor expected(DType::kF32, {64, 64});
  gemm(on_cpu, on_cpu, expected);
  EXPECT_TRUE(same(out.view(), expected.view()));
  // One rotated factor of two.
  RecipeOptions plain;
  plain.nvfp4.random_hadamard = false;
  const auto not_rotated =
      make_quantizer(
          {.recipe = RecipeKind::kNvfp4, .tensor = TensorKind::kActivation, .name = "fc1", .options = plain})
          ->quantize(there.view(), {true, true}, {});
  gemm(nvfp4->operand(Direction::kColumnwise), not_rotated->operand(Direction::kColumnwise), out);
  EXPECT_THAT(said_, ElementsAre(_, _, HasSubstr("only one factor of NVFP4 is rotated")));
}

TEST_F(DeviceGemmTest, WhatIsNotMultipliedAsItIsIsDecodedAndSaidOnce) {
  const EmulatedDevice device(options());
  const Tensor x = test::sample_tensor({32, 64}, 5);
  const Tensor w = test::sample_tensor({32, 64}, 6);
  const Tensor x_there = device.put(x.view());
  const Tensor w_there = device.put(w.view());
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kNvfp4}) {
    const auto x_codes = codes_of(x_there.view(), recipe, TensorKind::kActivation);
    const auto w_codes = codes_of(w_there.view(), recipe, TensorKind::kActivation);
    for (int i = 0; i < 2; ++i) {
      gemm(x_codes->operand(Direction::kRowwise), w_codes->operand(Direction::kRowwise),
           device.tensor(DType::kF32, {32, 32}));
    }
  }
  EXPECT_THAT(said_, ElementsAre(HasSubstr("does not multiply MXFP8"), HasSubstr("does not multiply NVFP4")));
  said_.clear();

  // FP8 of an odd size, and codes with high precision.
  const Tensor odd = device.put(test::sample_tensor({3, 5}, 7).view());
  const auto odd_codes = codes_of(odd.view(), RecipeKind::kCurrent, TensorKind::kActivation);
  Tensor actual = device.tensor(DType::kBF16, {3, 3});
  gemm(odd_codes->operand(Direction::kRowwise), {odd.view()}, device.tensor(DType::kF32, {3, 3}));
  EXPECT_EQ(said_.size(), 1U);
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
    EXPECT_THAT(error.what(),
                HasSubstr("gemm on cuda:0: a device of compute capability 9.0 does not multiply MXFP8"));
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

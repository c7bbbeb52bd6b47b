// What-ifs of several recipes read the tensor together: the same bits as one by one, and no more reading of
// memory than their arithmetic needs.
#include "features/what_ifs_at_once.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "kernels/amax.hpp"
#include "tests/features/inspecting_fixture.hpp"
#include "tests/support/page_loads.hpp"

namespace amaxscope {
namespace {

using testing::gemm_tensor;
using testing::PageLoads;
using testing::te_feature;

constexpr Usage kBoth{true, true};
constexpr std::array kByRows = {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock};

InspectContext context_of(const InspectedTensor& tensor, const TensorView& x) {
  return {.tensor = tensor,
          .iteration = 0,
          .moment = {.phase = Phase::kForward, .microbatch = 0},
          .x = x,
          .has_original = true,
          .rowwise = nullptr,
          .columnwise = nullptr,
          .quantizer = nullptr,
          .tp_amax = nullptr};
}

void fill(void* data, DType dtype, std::size_t count) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < count; ++i) {
    float value = i % 97 == 0 ? 0.0F : std::ldexp(normal(engine), static_cast<int>(i / 5000 % 20) - 15);
    if (i % 30011 == 7) value = 3000.0F;
    if (dtype == DType::kF32) {
      static_cast<float*>(data)[i] = value;
    } else {
      static_cast<std::uint16_t*>(data)[i] =
          static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    }
  }
}

#define EXPECT_SAME(field) EXPECT_EQ(a.field, b.field) << #field
void expect_same(const QuantizationError& a, const QuantizationError& b) {
  EXPECT_SAME(numel);
  EXPECT_SAME(nan);
  EXPECT_SAME(compared);
  EXPECT_SAME(underflows);
  EXPECT_SAME(overflows);
  EXPECT_SAME(saturated);
  EXPECT_SAME(error_squares);
  EXPECT_SAME(signal_squares);
  EXPECT_SAME(quantized_squares);
  EXPECT_SAME(product);
  EXPECT_SAME(saturated_squares);
  EXPECT_SAME(flushed_squares);
  EXPECT_SAME(max_error);
}
void expect_same(const Measured& a, const Measured& b) {
  EXPECT_SAME(format);
  EXPECT_SAME(flags);
  EXPECT_SAME(scale);
  expect_same(a.error.elements, b.error.elements);
  EXPECT_SAME(error.blocks);
  EXPECT_SAME(error.zero_blocks);
  EXPECT_SAME(error.saturated_blocks);
  EXPECT_SAME(error.flushed_blocks);
  EXPECT_SAME(error.scale_min);
  EXPECT_SAME(error.scale_max);
  for (std::size_t i = 0; i < kWorstBlocks; ++i) {
    EXPECT_SAME(error.worst[i].error_squares);
    EXPECT_SAME(error.worst[i].row);
    EXPECT_SAME(error.worst[i].col);
  }
}
#undef EXPECT_SAME

struct Case {
  DType dtype;
  std::int64_t rows, cols, row_stride;
  TensorKind kind;
};

class WhatIfsAtOnce : public ::testing::TestWithParam<Case> {};

TEST_P(WhatIfsAtOnce, HaveTheBitsOfThemOneByOne) {
  const Case& c = GetParam();
  Tensor buffer(c.dtype, {c.rows, c.row_stride});
  fill(buffer.mutable_view().data(), c.dtype, static_cast<std::size_t>(buffer.numel()));
  const TensorView x(buffer.view().data(), c.dtype, {c.rows, c.cols}, {}, {}, c.row_stride);
  ASSERT_LT(rows_at_once(x), c.rows) << "one part proves nothing";
  const InspectedTensor tensor = gemm_tensor(c.kind);
  std::vector<std::unique_ptr<WhatIf>> what_ifs;
  std::vector<WhatIfRequest> requests;
  for (const RecipeKind recipe : kByRows) {
    what_ifs.push_back(std::make_unique<WhatIf>(recipe, tensor));
    requests.push_back({what_ifs.back().get(), kBoth});
  }
  const InspectContext context = context_of(tensor, x);
  const std::vector<WhatIf::Result> together = measure_at_once(context, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(to_string(kByRows[i]));
    const WhatIf::Result alone = what_ifs[i]->measure(context, kBoth, false);
    for (const std::size_t direction : {0U, 1U}) {
      ASSERT_TRUE(together[i][direction] && alone[direction]);
      expect_same(*together[i][direction], *alone[direction]);
      EXPECT_EQ(together[i][direction]->error.elements.numel, static_cast<std::uint64_t>(x.numel()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, WhatIfsAtOnce,
                         ::testing::Values(Case{DType::kF32, 700, 1024, 1024, TensorKind::kActivation},
                                           Case{DType::kF32, 600, 1024, 1024, TensorKind::kWeight},
                                           Case{DType::kBF16, 1100, 1024, 1024, TensorKind::kGradient},
                                           Case{DType::kF32, 7000, 100, 100, TensorKind::kActivation},
                                           Case{DType::kF32, 600, 1000, 1030, TensorKind::kActivation}));

/// Bytes of a tensor that a feature reads, in sizes of the tensor. The cache holds a third of it.
double readings(const std::string& stats, TensorKind kind = TensorKind::kActivation) {
  const Shape shape{2048, 1024};
  const auto bytes = static_cast<std::size_t>(shape.numel()) * sizeof(float);
  PageLoads memory(bytes, bytes / 3);
  fill(memory.data(), DType::kF32, static_cast<std::size_t>(shape.numel()));
  const TensorView x(memory.data(), DType::kF32, shape);
  const auto feature =
      te_feature("LogFp8TensorStats", "tensors: [activation, weight, gradient], stats: [" + stats + "]");
  const InspectedTensor tensor = gemm_tensor(kind);
  testing::FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  memory.start();
  feature->inspect_tensor(context_of(tensor, x));
  const std::size_t read = memory.bytes_read();
  memory.open();
  return static_cast<double>(read) / static_cast<double>(bytes);
}

TEST(WhatIfReadings, TheCounterCountsPassesThatDoNotFitTheCache) {
  constexpr std::size_t kCount = std::size_t{1} << 18;
  PageLoads memory(kCount * sizeof(float), kCount);
  const TensorView x(memory.data(), DType::kF32, {static_cast<std::int64_t>(kCount)});
  memory.start();
  EXPECT_EQ(amax_bits(x), 0U);
  EXPECT_EQ(memory.bytes_read(), x.bytes());
  EXPECT_EQ(amax_bits(x), 0U);
  EXPECT_EQ(memory.bytes_read(), 2 * x.bytes());
  const TensorView little(memory.data(), DType::kF32, {1024});
  memory.start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(amax_bits(little), 0U);
  EXPECT_EQ(memory.bytes_read(), little.bytes());
}

TEST(WhatIfReadings, BlockRecipesShareOne) {
  EXPECT_EQ(readings("mxfp8_mse"), 1.0);
  EXPECT_EQ(readings("mxfp8_mse, mxfp8_mse_columnwise"), 1.0);
  EXPECT_EQ(
      readings("mxfp8_mse, mxfp8_mse_columnwise, fp8_block_scaling_mse, fp8_block_scaling_mse_columnwise"),
      1.0);
}

TEST(WhatIfReadings, AScaleOfTheTensorTakesOneMoreForAllOfThem) {
  EXPECT_EQ(readings("fp8_current_scaling_mse"), 2.0);
  EXPECT_EQ(readings("fp8_delayed_scaling_mse, fp8_current_scaling_mse"), 2.0);
  EXPECT_EQ(readings("fp8_delayed_scaling_mse, fp8_current_scaling_mse, mxfp8_mse, mxfp8_mse_columnwise, "
                     "fp8_block_scaling_mse, fp8_block_scaling_mse_columnwise"),
            2.0);
}

}  // namespace
}  // namespace amaxscope

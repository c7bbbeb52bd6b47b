#include "features/log_tensor_stats.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.hpp"
#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::FakeRegistration;
using testing::feature_of;
using testing::flags_of;
using testing::gemm_tensor;
using ::testing::HasSubstr;
using testing::inspect;
using ::testing::IsEmpty;
using testing::load_error;
using testing::names_of;
using testing::row;
using testing::te_feature;
using testing::value_of;

constexpr const char* kReferenceStatistics =
    "tensors: [activation], stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range, "
    "{max_blockwise_dynamic_range: {block_size: 2, dims: 1}}]";

TEST(LogTensorStats, EveryStatisticOfTheReference) {
  const auto feature = te_feature("LogTensorStats", kReferenceStatistics);
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, row({1.0F, 2.0F, -8.0F, 2.0F}).view());
  const auto values = registration.values();
  EXPECT_EQ(value_of(values, "min"), -8.0);
  EXPECT_EQ(value_of(values, "max"), 2.0);
  EXPECT_EQ(value_of(values, "mean"), -0.75);
  EXPECT_EQ(value_of(values, "l1_norm"), 13.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "l2_norm"), std::sqrt(73.0));
  EXPECT_DOUBLE_EQ(*value_of(values, "std"), std::sqrt((73.0 - 4 * 0.5625) / 3));
  EXPECT_EQ(value_of(values, "cur_amax"), 8.0);
  EXPECT_EQ(value_of(values, "dynamic_range"), 3.0);
  // Blocks [1 2] and [-8 2]: 1 and 2 octaves. The transpose has columns of one element: 0.
  EXPECT_EQ(value_of(values, "max_blockwise_dynamic_range_block_size_2_dims_1_max_over_orientations"), 2.0);
  EXPECT_EQ(values.size(), 9U);
  EXPECT_FALSE(feature->alters_numerics());
}

TEST(LogTensorStats, BlockwiseRangeNamesAndOrientations) {
  const char* body =
      "tensors: [activation, weight, gradient], stats: [max_blockwise_dynamic_range, "
      "{max_blockwise_dynamic_range: {block_size: 2, dims: 2}}]";
  // Rows have equal elements, columns differ by a factor of four.
  const Tensor x = Tensor::of<float>({1.0F, 1.0F, 4.0F, 4.0F}, Shape{2, 2});
  for (const TensorKind kind : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
    const auto feature = te_feature("LogTensorStats", body);
    const InspectedTensor tensor = gemm_tensor(kind);
    FakeRegistration registration;
    feature->register_tensor(tensor, registration);
    inspect(*feature, tensor, x.view());
    const auto values = registration.values();
    const bool gradient = kind == TensorKind::kGradient;
    const std::string suffix = gradient ? "" : "_max_over_orientations";
    EXPECT_EQ(value_of(values, "max_blockwise_dynamic_range_block_size_32_dims_1" + suffix),
              gradient ? 0.0 : 2.0);
    EXPECT_EQ(value_of(values, "max_blockwise_dynamic_range_block_size_2_dims_2" + suffix), 2.0);
    EXPECT_EQ(values.size(), 2U);
  }
}

TEST(LogTensorStats, ARowThatIsNoMultipleOfTheBlock) {
  const auto feature =
      te_feature("LogTensorStats", "tensors: gradient, stats: [max_blockwise_dynamic_range]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kGradient);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  // 5 x 40 in blocks of 32: the last 8 of a row are a block of their own, and rows do not run into each
  // other.
  std::vector<float> values(200, 1.0F);
  values[31] = 1024.0F;   // end of the first block of row 0
  values[39] = 4.0F;      // in the last block of row 0
  values[40] = 0x1p-10F;  // start of row 1
  const Tensor x = Tensor::of<float>(values, Shape{5, 40});
  inspect(*feature, tensor, x.view());
  EXPECT_EQ(registration.values().at(0).value, 10.0);
}

TEST(LogTensorStats, MicrobatchesMerge) {
  const auto feature =
      te_feature("LogTensorStats", "tensors: [activation], stats: [cur_amax, std, l2_norm, numel]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  for (const float value : {9.0F, 1.0F, 2.0F}) inspect(*feature, tensor, row({value}).view());
  const auto values = registration.values();
  EXPECT_EQ(value_of(values, "cur_amax"), 9.0);
  EXPECT_EQ(value_of(values, "numel"), 3.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "std"), std::sqrt(19.0));  // 5, -3, -2 from 4: 38 / 2
}

TEST(LogTensorStats, WeightsCountOnceBetweenResets) {
  const auto feature =
      te_feature("LogTensorStats",
                 "tensors: [weight], stats: [numel, max, {max_blockwise_dynamic_range: {block_size: 2}}]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kWeight);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, row({5.0F, 5.0F}).view());
  inspect(*feature, tensor, row({9.0F, 1.0F}).view());
  EXPECT_EQ(value_of(registration.values(), "numel"), 2.0);
  EXPECT_EQ(value_of(registration.values(), "max"), 5.0);
  EXPECT_EQ(registration.values().at(0).value, 0.0);  // the range of the first
  for (auto& one : registration.declared) one.cell.train->reset();
  inspect(*feature, tensor, row({9.0F}).view());
  EXPECT_EQ(value_of(registration.values(), "max"), 9.0);
}

TEST(LogTensorStats, EvalIsKeptApartAndRecomputeFeedsNothing) {
  const auto feature =
      te_feature("LogTensorStats",
                 "tensors: [activation], stats: [cur_amax, {max_blockwise_dynamic_range: {block_size: 2}}]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, row({1.0F}).view());
  inspect(*feature, tensor, row({1000.0F}).view(), {.phase = Phase::kEval});
  inspect(*feature, tensor, row({2.0F}).view());
  inspect(*feature, tensor, row({500.0F}).view(), {.phase = Phase::kRecompute});
  EXPECT_EQ(value_of(registration.values(Phase::kForward), "cur_amax"), 2.0);
  EXPECT_EQ(value_of(registration.values(Phase::kEval), "cur_amax"), 1000.0);
}

TEST(LogTensorStats, RecomputeAloneIsNoRun) {
  const auto feature = te_feature("LogTensorStats", "tensors: [activation], stats: [cur_amax]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, row({1.0F}).view(), {.phase = Phase::kRecompute});
  EXPECT_FALSE(registration.ran());
}

TEST(LogTensorStats, AnEmptyTensorRan) {
  const auto feature =
      te_feature("LogTensorStats",
                 "tensors: [activation], stats: [min, {max_blockwise_dynamic_range: {block_size: 2}}]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, TensorView(nullptr, DType::kBF16, Shape{0, 8}));
  for (const auto& one : registration.declared) EXPECT_TRUE(one.cell.train->ran());
  EXPECT_THAT(names_of(registration.values()), ElementsAre("numel"));
}

TEST(LogTensorStats, NothingIsCountedWithoutAnOriginal) {
  const auto feature = te_feature("LogTensorStats", "tensors: [weight], stats: [min]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kWeight);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, TensorView(), {.has_original = false});
  EXPECT_FALSE(registration.ran());
}

TEST(LogTensorStats, TensorsHaveTheirOwnStatisticsAndSchedules) {
  const auto feature =
      te_feature("LogTensorStats",
                 "freq: 10, tensors_struct: [{tensor: activation, stats: [min], freq: 2, start_step: "
                 "3, end_step: 6}, {tensor: weight, stats: [max]}]");
  const InspectedTensor activation = gemm_tensor(TensorKind::kActivation);
  const InspectedTensor weight = gemm_tensor(TensorKind::kWeight);
  const InspectedTensor gradient = gemm_tensor(TensorKind::kGradient);
  FakeRegistration registration;
  for (const InspectedTensor* tensor : {&activation, &weight, &gradient}) {
    feature->register_tensor(*tensor, registration);
  }
  ASSERT_EQ(registration.declared.size(), 2U);
  EXPECT_EQ(registration.declared[0].schedule, Schedule(2, {{3, 6}}));
  EXPECT_EQ(registration.declared[1].schedule, Schedule(10, {{0, std::nullopt}}));

  std::vector<std::int64_t> due;
  for (std::int64_t i = 0; i < 12; ++i) {
    if (feature->inspect_tensor_enabled(activation, i).enabled) due.push_back(i);
    EXPECT_EQ(feature->inspect_tensor_enabled(weight, i).enabled, i % 10 == 0);
    EXPECT_FALSE(feature->inspect_tensor_enabled(gradient, i).enabled);
  }
  EXPECT_THAT(due, ElementsAre(4, 6));
  EXPECT_EQ(feature->inspect_tensor_enabled(weight, 1).next, 10);
  EXPECT_EQ(feature->inspect_tensor_enabled(gradient, 0).next, std::nullopt);
  inspect(*feature, gradient, row({1.0F}).view());  // never registered: nobody listens
  EXPECT_FALSE(registration.ran());
}

TEST(LogTensorStats, ObservedTensorsTakeTheOuterKeys) {
  const auto feature = te_feature("LogTensorStats", "tensors: [activation], stats: [max, rms], freq: 5");
  InspectedTensor residual;
  residual.layer = "decoder.layers.1.residual";
  residual.name = "residual";
  FakeRegistration registration;
  feature->register_tensor(residual, registration);
  EXPECT_TRUE(feature->inspect_tensor_enabled(residual, 5).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(residual, 6).enabled);
  inspect(*feature, residual, row({3.0F, 4.0F}).view());
  EXPECT_EQ(value_of(registration.values(), "max"), 4.0);
  EXPECT_DOUBLE_EQ(*value_of(registration.values(), "rms"), std::sqrt(12.5));
}

TEST(LogTensorStats, BaseNamespaceHasFreeTensorNames) {
  const auto feature = feature_of(
      "s: {enabled: true, layers: {layer_types: [all]}, LogTensorStats: {enabled: true, tensors: [logits, "
      "hidden], "
      "stats: [min, max, mean, std, l1_norm, l2_norm]}}");
  InspectedTensor logits;
  logits.layer = "head";
  logits.name = "logits";
  InspectedTensor other = logits;
  other.name = "weight";
  FakeRegistration registration;
  feature->register_tensor(logits, registration);
  feature->register_tensor(other, registration);
  EXPECT_EQ(registration.declared.size(), 1U);
  EXPECT_TRUE(feature->inspect_tensor_enabled(logits, 0).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(other, 0).enabled);
  inspect(*feature, logits, row({-1.0F, 3.0F}).view());
  EXPECT_THAT(names_of(registration.values()),
              ElementsAre("min", "max", "mean", "std", "l1_norm", "l2_norm"));
}

TEST(LogTensorStats, WrongStatisticsAreErrorsAtLoad) {
  const auto error = [](const std::string& stats) {
    return load_error(
        "s:\n  enabled: true\n  layers: {layer_types: [all]}\n  transformer_engine:\n    LogTensorStats:\n   "
        "   "
        "enabled: true\n      tensors: [weight]\n      stats: [" +
        stats + "]\n");
  };
  EXPECT_THAT(error("l2_nrom"), HasSubstr("did you mean \"l2_norm\""));
  EXPECT_THAT(error("l2_nrom"), HasSubstr("test.yaml:8:"));
  EXPECT_THAT(error("underflows%"), HasSubstr("underflows%"));
  EXPECT_THAT(error("{max_blockwise_dynamic_range: {dims: 3}}"), HasSubstr("dims"));
  EXPECT_THAT(error("{max_blockwise_dynamic_range: {block_size: 0}}"), HasSubstr("block_size"));
  EXPECT_THAT(error("{min: {block_size: 4}}"), HasSubstr("takes no parameters"));
}

TEST(LogTensorStats, ABlockTooLargeToNameIsRefusedAtRegistration) {
  const auto feature =
      te_feature("LogTensorStats",
                 "tensors: [weight], stats: [{max_blockwise_dynamic_range: {block_size: 4294967297}}]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kWeight);
  FakeRegistration registration;
  try {
    feature->register_tensor(tensor, registration);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("LogTensorStats of section section"));
  }
}

}  // namespace
}  // namespace amaxscope

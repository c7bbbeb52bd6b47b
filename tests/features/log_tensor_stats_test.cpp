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

TEST(LogTensorStats, ShapeAndPeakOfOneTensor) {
  const auto feature = te_feature(
      "LogTensorStats", "tensors: [activation], stats: [skewness, kurtosis, peak_rms, min_finite, cur_amax]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  inspect(*feature, tensor, row({0, 0}).view());
  inspect(*feature, tensor, row({0, 4}).view());
  const auto values = registration.values();
  EXPECT_DOUBLE_EQ(*value_of(values, "skewness"), 6 / std::sqrt(27.0));
  EXPECT_DOUBLE_EQ(*value_of(values, "kurtosis"), 21.0 / 9 - 3);
  EXPECT_EQ(value_of(values, "peak_rms"), 2.0);
  EXPECT_EQ(value_of(values, "min_finite"), 0.0);
}

TEST(LogTensorStats, AHigherOrderAfterALowerOneOfTheSameTensor) {
  const auto low = te_feature("LogTensorStats", "tensors: [activation], stats: [std]");
  const auto high = te_feature("LogTensorStats", "tensors: [activation], stats: [skewness]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  for (Feature* feature : {low.get(), high.get()}) feature->register_tensor(tensor, registration);
  const Tensor x = row({0, 0, 0, 4});
  const TensorView view = x;
  const InspectContext context{.tensor = tensor,
                               .iteration = 0,
                               .moment = {},
                               .x = view,
                               .has_original = true,
                               .rowwise = nullptr,
                               .columnwise = nullptr,
                               .quantizer = nullptr,
                               .tp_amax = nullptr};
  for (Feature* feature : {low.get(), high.get(), low.get()}) feature->inspect_tensor(context);
  EXPECT_DOUBLE_EQ(*value_of(registration.values(), "skewness"), 6 / std::sqrt(27.0));
}

TEST(LogTensorStats, HistogramOutliersAndChannels) {
  const auto feature =
      te_feature("LogTensorStats",
                 "tensors: [activation], stats: [histogram, {histogram: {bins: 1}}, {outliers: "
                 "{threshold: 2}}, outliers, {outlier_channels: {top: 1}}]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  ASSERT_EQ(registration.declared.size(), 5U);
  const Tensor x = Tensor::of<float>({1, 0, 1, 8, 1, 1, 1, 0.5F}, Shape{2, 4});  // rms 2.9
  inspect(*feature, tensor, x.view());
  const auto values = registration.values();
  EXPECT_EQ(value_of(values, "histogram_2^0"), 5.0);
  EXPECT_EQ(value_of(values, "histogram_below_2^3"), 6.0) << "of the one with a single bin";
  EXPECT_EQ(value_of(values, "outliers_threshold_2"), 1.0);
  EXPECT_EQ(value_of(values, "outliers_threshold_2%"), 12.5);
  EXPECT_EQ(value_of(values, "outliers_threshold_10"), 0.0) << "the default";
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 3.0);
  EXPECT_FALSE(value_of(values, "outlier_channel_2_id").has_value());
}

TEST(LogTensorStats, EverythingOfATensorWithoutElementsAndOfOneElement) {
  const char* body =
      "tensors: [activation], stats: [numel, std, skewness, peak_rms, histogram, outliers, outlier_channels, "
      "max_blockwise_dynamic_range]";
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto feature = te_feature("LogTensorStats", body);
    const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
    FakeRegistration registration;
    feature->register_tensor(tensor, registration);
    inspect(*feature, tensor, TensorView(nullptr, dtype, Shape{0, 8}));
    EXPECT_TRUE(registration.ran());
    EXPECT_THAT(names_of(registration.values()),
                ::testing::UnorderedElementsAre("numel", "histogram_zero", "histogram_nan", "histogram_inf"));
    const std::vector<std::uint32_t> one = {dtype == DType::kF32   ? 0x40000000U
                                            : dtype == DType::kF16 ? 0x4000U
                                                                   : 0x4000U};  // 2
    inspect(*feature, tensor, TensorView(one.data(), dtype, Shape{1, 1}));
    const auto values = registration.values();
    EXPECT_EQ(value_of(values, "numel"), 1.0);
    EXPECT_FALSE(value_of(values, "std").has_value());
    EXPECT_FALSE(value_of(values, "skewness").has_value());
    EXPECT_EQ(value_of(values, "peak_rms"), 1.0);
    EXPECT_EQ(value_of(values, "histogram_2^1"), 1.0);
    EXPECT_EQ(value_of(values, "outlier_channel_1_energy%"), 100.0);
    EXPECT_EQ(value_of(values, "outliers_threshold_10"), 0.0);
  }
}

TEST(LogTensorStats, StatisticsOfUpdatesBelongToUpdates) {
  const auto feature = te_feature("LogTensorStats",
                                  "tensors: [weight], stats: [rms, update_ratio, lost_updates%, adam_ratio]");
  const InspectedTensor weight = gemm_tensor(TensorKind::kWeight);
  const auto observed = [](const char* kind) {
    InspectedTensor tensor;
    tensor.layer = "decoder.1.fc1.weight";
    tensor.name = kind;
    return tensor;
  };
  const InspectedTensor update = observed("update");
  const InspectedTensor parameter = observed("parameter");
  const InspectedTensor residual = observed("residual");
  FakeRegistration of_weight;
  feature->register_tensor(weight, of_weight);
  EXPECT_THAT(of_weight.skipped, ElementsAre("update_ratio", "lost_updates%", "adam_ratio"));
  EXPECT_THAT(of_weight.reasons[0], HasSubstr("observe_update"));
  FakeRegistration of_parameter;
  feature->register_tensor(parameter, of_parameter);
  EXPECT_THAT(of_parameter.skipped, IsEmpty()) << "its update is observed under the same name";
  FakeRegistration of_residual;
  feature->register_tensor(residual, of_residual);
  EXPECT_EQ(of_residual.skipped.size(), 3U);
  for (const FakeRegistration* one : {&of_weight, &of_parameter, &of_residual}) {
    EXPECT_EQ(one->declared.size(), 1U) << "rms is left";
  }

  FakeRegistration registration;
  feature->register_tensor(update, registration);
  const Tensor stored = Tensor::of<BF16>({to_bf16(1), to_bf16(1), to_bf16(1), to_bf16(1)}, Shape{1, 4});
  const Tensor x = row({0.5F, 0x1p-10F, 0, 0x1p-10F});
  const Tensor normalized = row({1, -1, 0, 1});
  const TensorView stored_view = stored;
  const TensorView x_view = x;
  const TensorView normalized_view = normalized;
  feature->inspect_tensor({.tensor = update,
                           .iteration = 0,
                           .moment = {},
                           .x = x_view,
                           .has_original = true,
                           .rowwise = nullptr,
                           .columnwise = nullptr,
                           .quantizer = nullptr,
                           .tp_amax = nullptr,
                           .weight = &stored_view,
                           .normalized_gradient = &normalized_view});
  const auto values = registration.values();
  EXPECT_THAT(registration.skipped, IsEmpty());
  EXPECT_NEAR(*value_of(values, "update_ratio"), 0.25, 1e-5);
  EXPECT_DOUBLE_EQ(*value_of(values, "lost_updates%"), 200.0 / 3);
  EXPECT_DOUBLE_EQ(*value_of(values, "adam_ratio"), std::sqrt(0.75));
  EXPECT_NEAR(*value_of(values, "rms"), 0.25, 1e-5) << "of the update itself";
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
  EXPECT_THAT(error("kurtosys"), HasSubstr("did you mean \"kurtosis\""));
  EXPECT_THAT(error("outlier_chanels"), HasSubstr("did you mean \"outlier_channels\""));
  EXPECT_THAT(error("lost_updates"), HasSubstr("did you mean \"lost_updates%\""));
  EXPECT_THAT(error("{histogram: {bin: 4}}"), HasSubstr("did you mean \"bins\""));
  EXPECT_THAT(error("{histogram: {bins: 0}}"), HasSubstr("bins must be 1 or more"));
  EXPECT_THAT(error("{outliers: {threshold: 2.5}}"), HasSubstr("threshold must be an integer"));
  EXPECT_THAT(error("{outlier_channels: {top: 0}}"), HasSubstr("top must be 1 or more"));
}

TEST(LogTensorStats, AParameterTooLargeIsRefusedAtRegistration) {
  for (const char* stat :
       {"{max_blockwise_dynamic_range: {block_size: 4294967297}}", "{histogram: {bins: 4294967297}}",
        "{outliers: {threshold: 4294967297}}", "{outlier_channels: {top: 4294967297}}"}) {
    const auto feature =
        te_feature("LogTensorStats", std::string("tensors: [weight], stats: [") + stat + "]");
    const InspectedTensor tensor = gemm_tensor(TensorKind::kWeight);
    FakeRegistration registration;
    try {
      feature->register_tensor(tensor, registration);
      FAIL() << stat;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_THAT(error.what(), HasSubstr("LogTensorStats of section section"));
    }
  }
}

}  // namespace
}  // namespace amaxscope

// Statistics of tensors on a device wait there for step(): the values of the CPU over micro-batches, phases
// and recipes, no wait of the host before, and one fetch.
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

constexpr std::string_view kConfig = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, output]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range, numel, nonzero, skewness, kurtosis]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, overflows%, mse, sqnr, cosine, max_error, scale_inv_min, scale_inv_max, scale_age]
again:
  enabled: True
  layers: {layer_name_regex_pattern: fc1}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [max, rms]
      freq: 2
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight]
      stats: [fp8_current_scaling_mse, fp8_delayed_scaling_sqnr, fp8_delayed_scaling_scale_inv_max]
)";
/// What is computed on the host, at every second iteration.
constexpr std::string_view kOnTheHost = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, output]
      stats: [min, max, histogram, outliers, outlier_channels, outlier_rows, max_blockwise_dynamic_range]
      freq: 2
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, mse, sqnr, saturated%, rounding_mean, rounding_correlation, scale_inv_max, mxfp8_mse,
              fp8_block_scaling_sqnr, fp8_current_scaling_mse]
      freq: 2
    LogNvfp4TensorStats:
      enabled: True
      tensors: [activation, gradient]
      stats: [underflows%, mse, mse_columnwise]
      freq: 2
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient, output]
      freq: 2
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient, output]
      freq: 2
    Trends:
      enabled: True
      tensors: [activation, weight, gradient]
      alarm: [underflow]
      freq: 2
)";
constexpr int kSteps = 4;

struct Logged {
  std::vector<StatRecord> records;
  std::vector<int> waits;  ///< of each iteration before step()
  std::vector<int> fetches;
  std::vector<std::string> found;
  Scalars scalars;  ///< of the last step
  bool detached = false;
};

Logged run_on(const EmulatedDevice* device, RecipeKind recipe, std::string_view config = kConfig,
              bool with_nan = false) {
  Logged run;
  SessionOptions options;
  options.config_text = std::string(config);
  options.extra_sinks.push_back(make_callback_sink(
      [&](const StatRecord& record) { run.records.push_back(record); },
      [&](std::int64_t, const Scalars& scalars) { run.scalars = scalars; },
      [&](const Finding& finding) { run.found.push_back(finding.check + " " + finding.what); }));
  DebugSession session(builtin_features(), {}, std::move(options));
  DelayedScalingState delayed({.history_length = 2}, nullptr);
  const auto made = [&](TensorKind tensor) {
    return make_quantizer({.recipe = recipe,
                           .tensor = tensor,
                           .name = "fc1." + std::string(to_string(tensor)),
                           .delayed = recipe == RecipeKind::kDelayed ? &delayed : nullptr});
  };
  LayerDescription layer;
  layer.name = "fc1";
  layer.recipe = recipe;
  const LayerHandle handle = session.layer(
      layer, {made(TensorKind::kActivation), made(TensorKind::kWeight), made(TensorKind::kGradient)});
  const auto placed = [&](const Tensor& host) {
    return device == nullptr ? host.clone() : device->put(host.view());
  };
  std::vector<Tensor> tensors;  // alive until the end of the step
  int waits = 0;
  const auto hand_in = [&](TensorKind tensor, unsigned seed, float factor, const TensorMoment& moment) {
    Tensor x = test::sample_tensor({32, 64}, seed);
    for (float& value : x.values<float>()) value *= factor;
    if (with_nan && seed == 202) x.values<float>()[77] = std::numeric_limits<float>::quiet_NaN();
    tensors.push_back(placed(x));
    // Page-locked memory is free again when its copy is done; more of it would be a wait.
    if (device != nullptr) device->finish();
    const int before = fake::host_waits();
    if (DebugQuantizer* debug = handle.quantizer(tensor)) {
      if (is_result(tensor)) {
        debug->process_gemm_output(tensors.back(), moment);
      } else {
        static_cast<void>(debug->quantize(tensors.back().view(), {true, true}, moment));
      }
    }
    waits += fake::host_waits() - before;
  };
  for (unsigned step = 0; step < kSteps; ++step) {
    tensors.clear();
    waits = 0;
    for (int batch = 0; batch < 3; ++batch) {
      // An amax of 0 in one micro-batch, and the same scale in the others.
      const float factor = step == 2 && batch == 1 ? 0.0F : 1.0F;
      hand_in(TensorKind::kActivation, 10 * step + static_cast<unsigned>(batch), factor,
              {Phase::kForward, batch});
      hand_in(TensorKind::kWeight, 100 + step / 2, 1.0F, {Phase::kForward, batch});
      hand_in(TensorKind::kOutput, 200 + step, 3.0F, {Phase::kForward, batch});
      hand_in(TensorKind::kGradient, 300 + 10 * step + static_cast<unsigned>(batch), 0x1p-20F,
              {Phase::kBackward, batch});
    }
    hand_in(TensorKind::kActivation, 400, 1.0F, {Phase::kRecompute, 0});
    hand_in(TensorKind::kActivation, 500 + step, 1.0F, {Phase::kEval, 0});
    run.waits.push_back(waits);
    const int fetches = fake::calls("cudaEventSynchronize");
    session.step();
    run.fetches.push_back(fake::calls("cudaEventSynchronize") - fetches);
    delayed.update();
  }
  run.detached = session.detached();
  session.close();
  return run;
}

void expect_same_records(const Logged& actual, const Logged& expected, std::string_view what) {
  ASSERT_EQ(actual.records.size(), expected.records.size()) << what;
  for (std::size_t i = 0; i < actual.records.size(); ++i) {
    const StatRecord& got = actual.records[i];
    const StatRecord& wanted = expected.records[i];
    ASSERT_EQ(got.tensor, wanted.tensor);
    ASSERT_EQ(got.phase, wanted.phase);
    EXPECT_EQ(got.format, wanted.format);
    ASSERT_EQ(got.stats.size(), wanted.stats.size()) << wanted.iteration << ' ' << wanted.tensor;
    for (std::size_t k = 0; k < got.stats.size(); ++k) {
      const StatValue& a = got.stats[k];
      const StatValue& b = wanted.stats[k];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.flags, b.flags) << what << ' ' << wanted.iteration << ' ' << wanted.tensor << ' ' << b.name;
      EXPECT_EQ(a.format, b.format);
      if (std::isnan(b.value) && std::isnan(a.value)) continue;
      EXPECT_NEAR(a.value, b.value, 1e-9 * std::abs(b.value))
          << what << ' ' << wanted.iteration << ' ' << wanted.tensor << ' ' << b.name;
    }
  }
}

TEST_F(DeviceTest, StatisticsAreThoseOfTheCpuAndComeInOneCopyAtTheEndOfTheStep) {
  for (const RecipeKind recipe : {RecipeKind::kCurrent, RecipeKind::kDelayed}) {
    const EmulatedDevice device;
    const Logged expected = run_on(nullptr, recipe);
    const Logged actual = run_on(&device, recipe);
    EXPECT_FALSE(actual.detached);
    for (std::size_t i = 1; i < actual.waits.size(); ++i) {  // page-locked memory is made in the first
      EXPECT_EQ(actual.waits[i], 0) << i;
      EXPECT_EQ(actual.fetches[i], 1) << i;
    }
    EXPECT_GE(actual.records.size(), 5U * kSteps);
    expect_same_records(actual, expected, to_string(recipe));
  }
}

TEST_F(DeviceTest, WhatTheHostComputesComesOfCopiesAndIsThatOfTheCpu) {
  for (const RecipeKind recipe : {RecipeKind::kCurrent, RecipeKind::kDelayed, RecipeKind::kMxfp8,
                                  RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const EmulatedDevice device;
    const Logged expected = run_on(nullptr, recipe, kOnTheHost, /*with_nan=*/true);
    const Logged actual = run_on(&device, recipe, kOnTheHost, /*with_nan=*/true);
    EXPECT_FALSE(expected.detached);
    EXPECT_FALSE(actual.detached) << to_string(recipe);
    for (const std::size_t idle : {1, 3}) {
      EXPECT_EQ(actual.waits[idle], 0) << "not due";
      EXPECT_EQ(actual.fetches[idle], 0) << "not due";
    }
    EXPECT_GT(actual.waits[2], 0);
    EXPECT_GE(actual.records.size(), 5U);
    expect_same_records(actual, expected, to_string(recipe));
    EXPECT_EQ(actual.found, expected.found);
    EXPECT_GE(actual.found.size(), 1U) << "the NaN";
    EXPECT_EQ(actual.scalars, expected.scalars) << "as many comparisons of the guards";
  }
}

}  // namespace
}  // namespace amaxscope::testing

// Amaxes of all weights in one call: what it saves, that it changes nothing else, and what it refuses.
#include <gmock/gmock.h>

#include <bit>

#include "core/error.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 70;  // more than one frame of 60 amaxes holds

/// Every feature that takes an amax of a weight over tp, by itself.
struct Taker {
  const char* name;
  const char* yaml;
  RecipeKind recipe;
  std::uint64_t reductions;  ///< of one weight, without being told that it is final
};
constexpr std::array kTakers = {
    Taker{"PerTensorScaling", "PerTensorScaling: {enabled: True, gemms: [fprop, dgrad], tensors: [weight]}",
          RecipeKind::kDelayed, 1},
    Taker{"FakeQuantFp8",
          "FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight], quant_format: FP8E4M3}",
          RecipeKind::kNone, 1},
    Taker{"FakeQuantNvfp4",
          "FakeQuant: {enabled: True, gemms: [fprop, dgrad], tensors: [weight], quant_format: NVFP4}",
          RecipeKind::kNone, 2},
    Taker{"RecipeOverrideCurrent",
          "RecipeOverride: {enabled: True, gemms: [fprop, dgrad, wgrad], tensors: [activation, weight, "
          "gradient], recipe: current}",
          RecipeKind::kMxfp8, 1},
    Taker{"RecipeOverrideNvfp4",
          "RecipeOverride: {enabled: True, gemms: [fprop, dgrad, wgrad], tensors: [activation, weight, "
          "gradient], recipe: nvfp4}",
          RecipeKind::kMxfp8, 1},
    Taker{
        "WhatIfs",
        "LogFp8TensorStats: {enabled: True, tensors: [weight], stats: [fp8_current_scaling_mse, mxfp8_mse]}",
        RecipeKind::kMxfp8, 1},
    Taker{"Nvfp4WhatIf", "LogNvfp4TensorStats: {enabled: True, tensors: [weight], stats: [sqnr]}",
          RecipeKind::kMxfp8, 1}};

std::string section_with(const std::string& feature) {
  return "all:\n  enabled: true\n  layers: {layer_types: [all]}\n  transformer_engine:\n    " + feature +
         "\n";
}

/// Of layer `index`, whose largest element is on one of the ranks.
Tensor weight_of(int index, int rank) {
  Tensor weight(DType::kF32, {32, 32});
  std::span<float> values = weight.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * 7 + index + rank) % 97 - 48) / 64.0F;
  }
  values[5] = rank == index % 2 ? 3.0F + static_cast<float>(index) : 1.0F;
  return weight;
}

OperandQuantizers parents_of(RecipeKind recipe) {
  OperandQuantizers parents;
  if (recipe == RecipeKind::kDelayed) {
    parents.weight =
        std::make_shared<Float8CurrentScalingQuantizer>(DType::kE4M3, CurrentScalingOptions{}, nullptr);
  } else if (recipe != RecipeKind::kNone) {
    QuantizerRequest request;
    request.recipe = recipe;
    request.tensor = TensorKind::kWeight;
    request.name = "weight";
    parents.weight = make_quantizer(request);
  }
  return parents;
}

class FinalWeights : public ::testing::TestWithParam<Taker> {};

TEST_P(FinalWeights, AreReducedTogetherAndGiveTheSameBits) {
  const Taker& taker = GetParam();
  const auto collected = run_sessions(
      {.ranks = 2, .sizes = {.tp = 2}, .yaml = section_with(taker.yaml)}, [&](SessionRank& self) {
        std::vector<LayerHandle> handles;
        std::vector<Tensor> weights;
        for (int i = 0; i < kLayers; ++i) {
          LayerDescription layer = self.layer(fmt::format("layer{}.fc1", i));
          layer.recipe = taker.recipe;
          handles.push_back(self.session.layer(layer, parents_of(taker.recipe)));
          weights.push_back(weight_of(i, self.world.rank()));
        }
        for (std::size_t i = 0; i < weights.size(); ++i) {
          handles[i].set_weight([&weights, i] { return weights[i].view(); });
        }
        self.session.freeze();
        std::vector<std::vector<float>> made;
        const auto calls_of = [&](const std::function<void()>& what) {
          self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
          const std::uint64_t before = self.debug_calls();
          what();
          return self.debug_calls() - before;
        };
        const auto quantize_all = [&] {
          std::vector<float> values;
          for (std::size_t i = 0; i < weights.size(); ++i) {
            const auto result =
                handles[i].quantizer(TensorKind::kWeight)->quantize(weights[i], {true, true}, {});
            for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
              const Tensor back = result->dequantize(DType::kF32, direction);
              values.insert(values.end(), back.values<float>().begin(), back.values<float>().end());
            }
          }
          made.push_back(std::move(values));
        };
        quantize_all();  // the first reduction compares registrations
        self.session.step();
        EXPECT_EQ(calls_of([&] { quantize_all(); }), kLayers * taker.reductions) << "one by one";
        self.session.step();
        EXPECT_EQ(calls_of([&] { self.session.weights_are_final(); }), 2U) << "two frames for 70 weights";
        EXPECT_EQ(calls_of([&] { quantize_all(); }), 0U);
        EXPECT_EQ(calls_of([&] { quantize_all(); }), 0U) << "a later micro-batch";
        self.session.step();
        EXPECT_EQ(calls_of([&] { quantize_all(); }), kLayers * taker.reductions) << "what was known is old";
        EXPECT_EQ(made[1], made[0]);
        EXPECT_EQ(made[2], made[0]);
        EXPECT_EQ(made[3], made[0]);
        EXPECT_EQ(made[4], made[0]);
      });
  for (int i = 0; i < kLayers; ++i) {
    const auto records = collected->of(0, fmt::format("layer{}.fc1", i), "weight");
    for (std::size_t step = 1; step < records.size(); ++step) {
      ASSERT_EQ(records[step].stats.size(), records[0].stats.size());
      for (std::size_t s = 0; s < records[0].stats.size(); ++s) {
        EXPECT_EQ(records[step].stats[s].value, records[0].stats[s].value) << records[0].stats[s].name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Features, FinalWeights, ::testing::ValuesIn(kTakers),
                         [](const auto& taker) { return std::string(taker.param.name); });

TEST(FinalWeightsCost, NothingIsSentWhereNoFeatureTakesAnAmaxNow) {
  const std::string fake_quant =
      "FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight], quant_format: FP8E4M3, ";
  for (const std::string& feature :
       {fake_quant + "start_step: 5}", fake_quant + "amax_scope: local}", fake_quant + "amax_scope: te}",
        std::string("FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight], quant_format: "
                    "MXFP8E4M3}"),
        std::string("LogTensorStats: {enabled: True, tensors: [weight], stats: [max]}")}) {
    run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = section_with(feature)}, [&](SessionRank& self) {
      const Tensor weight = weight_of(0, self.world.rank());
      const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
      int asked = 0;
      handle.set_weight([&] {
        ++asked;
        return weight.view();
      });
      self.session.freeze();
      self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
      const std::uint64_t before = self.debug_calls();
      self.session.weights_are_final();
      EXPECT_EQ(self.debug_calls(), before) << feature;
      EXPECT_EQ(asked, 0) << "no pass over the weight either: " << feature;
    });
  }
}

TEST(FinalWeightsCost, RanksOfOneNeedNoReduction) {
  run_sessions({.yaml = section_with(kTakers[1].yaml)}, [](SessionRank& self) {
    const Tensor weight = weight_of(0, 0);
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    handle.set_weight([&] { return weight.view(); });
    self.session.weights_are_final();
    EXPECT_EQ(self.debug_calls(), 0U);
    feed(handle, TensorKind::kWeight, weight);
  });
}

TEST(FinalWeightsThatChange, AreRefusedBeforeAScaleIsMadeOfWhatTheyWere) {
  for (const Taker& taker : {kTakers[1], kTakers[2]}) {  // asked for by tensor, and by value
    ::testing::internal::CaptureStderr();
    EXPECT_THROW(run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = section_with(taker.yaml)},
                              [&](SessionRank& self) {
                                Tensor weight = weight_of(0, self.world.rank());
                                const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                                handle.set_weight([&] { return weight.view(); });
                                self.session.weights_are_final();
                                for (float& value : weight.values<float>()) value *= 2;  // an optimizer step
                                feed(handle, TensorKind::kWeight, weight);
                                ADD_FAILURE() << taker.name;
                              }),
                 Error);
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(printed, HasSubstr("failed on weight of a.fc1"));
    EXPECT_THAT(printed, HasSubstr("said to be final in this iteration"));
  }
}

TEST(FinalWeightsThatDiffer, ARankThatSaysSoAloneIsAMismatchThatNamesBothCalls) {
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = section_with(kTakers[1].yaml)},
                            [&](SessionRank& self) {
                              const Tensor weight = weight_of(0, self.world.rank());
                              const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                              handle.set_weight([&] { return weight.view(); });
                              self.session.freeze();
                              if (self.world.rank() == 0) self.session.weights_are_final();
                              feed(handle, TensorKind::kWeight, weight);
                            }),
               Error);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, HasSubstr("amaxes of all weights"));
  EXPECT_THAT(printed, HasSubstr("a.fc1 weight"));
}

}  // namespace
}  // namespace amaxscope::testing

// What `sense` asks of a program, and what it makes of the answers: steps whose errors are known.
#include "report/sensitivity.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "runtime/session.hpp"

namespace amaxscope::report {
namespace {

using ::testing::HasSubstr;

const std::vector<SensedLayer> kLayers = {{"a.fc1", RecipeKind::kMxfp8},
                                          {"b.\"fc1", RecipeKind::kMxfp8},
                                          {"c.fc1", RecipeKind::kMxfp8},
                                          {"output_layer", RecipeKind::kNone}};

// ---- the configs, as a session understands them

struct Plans {
  bool fprop, dgrad, wgrad;  ///< whether both operands are the recipe's
  friend bool operator==(const Plans&, const Plans&) = default;
};
constexpr Plans kAll{true, true, true};
constexpr Plans kNone{false, false, false};

Plans plans_of(const LayerHandle& handle) {
  const auto standard = [&](TensorKind tensor, Direction direction) {
    const DebugQuantizer* quantizer = handle.active() ? handle.quantizer(tensor) : nullptr;
    return quantizer == nullptr || quantizer->plan(direction) == Plan::kStandardQuantize;
  };
  const auto both = [&](TensorKind a, Direction of_a, TensorKind b, Direction of_b) {
    EXPECT_EQ(standard(a, of_a), standard(b, of_b)) << "a GEMM of two kinds";
    return standard(a, of_a);
  };
  return {
      both(TensorKind::kActivation, Direction::kRowwise, TensorKind::kWeight, Direction::kRowwise),
      both(TensorKind::kGradient, Direction::kRowwise, TensorKind::kWeight, Direction::kColumnwise),
      both(TensorKind::kActivation, Direction::kColumnwise, TensorKind::kGradient, Direction::kColumnwise)};
}

/// By layer, under a config.
std::map<std::string, Plans> plans_under(const std::string& yaml) {
  const FeatureRegistry registry = builtin_features();
  SessionOptions options;
  options.config_text = yaml;
  options.strict = true;
  DebugSession session(registry, {}, options);
  std::map<std::string, Plans> plans;
  std::vector<LayerHandle> handles;
  for (const SensedLayer& layer : kLayers) {
    LayerDescription description;
    description.name = layer.name;
    description.recipe = layer.recipe;
    OperandQuantizers parents;
    if (layer.recipe != RecipeKind::kNone) {
      for (const auto& [slot, kind] : {std::pair{&parents.activation, TensorKind::kActivation},
                                       {&parents.weight, TensorKind::kWeight},
                                       {&parents.gradient, TensorKind::kGradient}}) {
        QuantizerRequest request;
        request.recipe = layer.recipe;
        request.tensor = kind;
        request.name = layer.name;
        *slot = make_quantizer(request);
      }
    }
    plans.emplace(layer.name, plans_of(session.layer(description, parents)));
  }
  session.step();
  session.close();
  return plans;
}

const Trial& find(const std::vector<Trial>& trials, std::string_view what) {
  const auto found = std::ranges::find(trials, what, &Trial::what);
  EXPECT_NE(found, trials.end()) << what;
  return *found;
}

TEST(SenseTrials, AreConfigsThatLeaveOutWhatTheySay) {
  const std::vector<Trial> trials = sense_trials(kLayers, /*each_gemm=*/true);
  EXPECT_EQ(trials.size(), 3U + 3U + 3U + 9U) << "the output layer is not quantized";
  for (const auto& [layer, plans] : plans_under(everything_in_high_precision())) {
    EXPECT_EQ(plans, layer == "output_layer" ? plans : kNone) << layer;
  }
  const auto expect = [&](const std::string& yaml, Plans a, Plans b, Plans c) {
    const auto plans = plans_under(yaml);
    EXPECT_EQ(plans.at("a.fc1"), a) << yaml;
    EXPECT_EQ(plans.at("b.\"fc1"), b) << yaml;
    EXPECT_EQ(plans.at("c.fc1"), c) << yaml;
  };
  const Trial& dgrad = find(trials, "dgrad");
  constexpr Plans kNoDgrad{true, false, true};
  constexpr Plans kDgrad{false, true, false};
  expect(dgrad.in_high_precision, kNoDgrad, kNoDgrad, kNoDgrad);
  expect(dgrad.alone_quantized, kDgrad, kDgrad, kDgrad);
  const Trial& layer = find(trials, "b.\"fc1");
  expect(layer.in_high_precision, kAll, kNone, kAll);
  expect(layer.alone_quantized, kNone, kAll, kNone);
  const Trial& one = find(trials, "wgrad of c.fc1");
  expect(one.in_high_precision, kAll, kAll, {true, true, false});
  expect(one.alone_quantized, kNone, kNone, {false, false, true});
  // Operands go through FakeQuant: no GEMM is left to the recipe.
  for (const char* operand : {"activation", "weight", "gradient"}) {
    expect(find(trials, operand).in_high_precision, kNone, kNone, kNone);
    expect(find(trials, operand).alone_quantized, kNone, kNone, kNone);
  }
  EXPECT_THAT(find(trials, "weight").alone_quantized,
              HasSubstr("{gemm: dgrad, tensors_struct: [{tensor: weight, quant_format: MXFP8E4M3}]}"));
  EXPECT_THAT(find(trials, "weight").alone_quantized, ::testing::Not(HasSubstr("output_layer")));
}

TEST(SenseTrials, AMixtureOfRecipesHasNoOperandKinds) {
  const auto trials =
      sense_trials(std::vector<SensedLayer>{{"a", RecipeKind::kMxfp8}, {"b", RecipeKind::kCurrent}}, false);
  EXPECT_EQ(std::ranges::count(trials, "tensor", &Trial::kind), 0);
  EXPECT_THROW(static_cast<void>(sense_trials(std::vector<SensedLayer>{{"a", RecipeKind::kNone}}, false)),
               Error);
}

// ---- what is made of steps

/// A step whose gradient is [1000, 0, ...] of one parameter and [1, 0, ...] of another, plus one error for
/// each layer that is quantized, all at right angles.
class Model {
 public:
  std::map<std::string, double> errors = {{"a.fc1", 3.0}, {"b.\"fc1", 1.0}, {"c.fc1", 2.0}};
  std::vector<Trial> trials;

  Model() {
    for (const Trial& trial : sense_trials(kLayers, false)) {
      if (trial.kind == "layer") trials.push_back(trial);
    }
  }

  [[nodiscard]] bool is_quantized(const std::string& yaml, const std::string& layer) const {
    if (yaml.empty()) return true;
    for (const Trial& trial : trials) {
      if (yaml == trial.in_high_precision) return trial.what != layer;
      if (yaml == trial.alone_quantized) return trial.what == layer;
    }
    EXPECT_EQ(yaml, everything_in_high_precision());
    return false;
  }

  StepResult run(const std::string& yaml) {
    large_ = std::vector<float>{1000, 0, 0, 0};
    small_ = std::vector<float>{1, 0, 0, 0};
    update_ = std::vector<double>{0.5, 0, 0, 0};
    StepResult result;
    result.loss = 2.0;
    std::size_t at = 1;
    for (const auto& [layer, error] : errors) {
      if (is_quantized(yaml, layer)) {
        large_[at] = static_cast<float>(1000 * 0.01 * error);
        small_[at] = static_cast<float>(0.01 * error);
        update_[at] = 0.001 * error;
        result.loss += error;
      }
      ++at;
    }
    const auto view = [](const auto& values, DType dtype) {
      return TensorView(values.data(), dtype, Shape{4});
    };
    result.gradient = {{view(large_, DType::kF32), 0, 0.5}, {view(small_, DType::kF32), 1, 0.5}};
    result.update = {{view(update_, DType::kF64), 0, 0.5}};
    result.parameters = 3;  // the third is on another stage, and its gradient is 0
    return result;
  }

 private:
  std::vector<float> large_, small_;
  std::vector<double> update_;
};

TEST(Sensitivity, SharesAreThoseOfSquaredErrors) {
  Model model;
  std::size_t steps = 0;
  const Sensitivity result = sense(
      model.trials, [&](const std::string& yaml) { return model.run(yaml); },
      [](std::span<double> sums) {
        for (double& value : sums) value *= 2;  // another rank with the same share
      },
      [&](std::size_t done, std::size_t all) {
        EXPECT_EQ(done, ++steps);
        EXPECT_EQ(all, 8U);
      });
  EXPECT_EQ(steps, 8U);
  EXPECT_EQ(result.loss, 8.0);
  EXPECT_EQ(result.loss_high_precision, 2.0);
  // 9 + 1 + 4 = 14 parts of 1e-4
  EXPECT_NEAR(result.gradient_error, std::sqrt(14e-4), 1e-8);
  EXPECT_NEAR(result.update_error, std::sqrt(14e-6) / 0.5, 1e-8);
  ASSERT_EQ(result.ranked.size(), 3U);
  EXPECT_EQ(result.ranked[0].trial.what, "a.fc1");
  EXPECT_EQ(result.ranked[1].trial.what, "c.fc1");
  EXPECT_EQ(result.ranked[2].trial.what, "b.\"fc1");
  EXPECT_NEAR(result.ranked[0].gradient_goes, 9.0 / 14, 1e-6);
  EXPECT_NEAR(result.ranked[0].gradient_alone, 9.0 / 14, 1e-6);
  EXPECT_NEAR(result.ranked[1].update_goes, 4.0 / 14, 1e-6);
  EXPECT_NEAR(result.ranked[1].update_alone, 4.0 / 14, 1e-6);
  EXPECT_NEAR(result.ranked[0].loss_change, -3.0, 1e-12);
  EXPECT_NEAR(result.ranked[0].loss_change_alone, 3.0, 1e-12);
  const std::string text = as_text(result);
  EXPECT_THAT(text, HasSubstr("gradient off by 3.7 %"));
  EXPECT_THAT(text, HasSubstr("no layer stands out")) << "64.3 % of 33.3 %";
  const auto json = nlohmann::json::parse(as_json(result));
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("ranked").at(2).at("what"), "b.\"fc1");
}

TEST(Sensitivity, TheLayerThatStandsOutIsNamedWithItsYaml) {
  Model model;
  model.errors["c.fc1"] = 30;
  const std::string text =
      as_text(sense(model.trials, [&](const std::string& yaml) { return model.run(yaml); }, {}));
  EXPECT_THAT(text, HasSubstr("most sensitive: c.fc1\n98.9 % of"));  // 900 of 910
  EXPECT_THAT(text, HasSubstr("exact_layer_names: [\"c.fc1\"]"));
}

TEST(Sensitivity, AStepThatIsNotFiniteIsCuredByWhatMakesItFinite) {
  Model model;
  model.errors["b.\"fc1"] = std::numeric_limits<double>::quiet_NaN();
  const Sensitivity result =
      sense(model.trials, [&](const std::string& yaml) { return model.run(yaml); }, {});
  EXPECT_EQ(result.ranked[0].trial.what, "b.\"fc1");
  EXPECT_EQ(result.ranked[0].gradient_goes, 1.0);
  EXPECT_EQ(result.ranked[0].gradient_alone, 1.0);
  EXPECT_EQ(result.ranked[1].gradient_goes, 0.0);
  EXPECT_EQ(result.ranked[1].gradient_alone, 0.0);
  EXPECT_THAT(as_text(result), HasSubstr("gradient off by not finite"));
  EXPECT_TRUE(nlohmann::json::parse(as_json(result)).at("gradient_error").is_null());
}

TEST(Sensitivity, AStepThatQuantizationDoesNotTouchSaysSo) {
  Model model;
  for (auto& [layer, error] : model.errors) error = 0;
  EXPECT_THAT(as_text(sense(model.trials, [&](const std::string& yaml) { return model.run(yaml); }, {})),
              HasSubstr("the same with and without quantization"));
}

TEST(Sensitivity, AProgramWhoseStepsHaveOtherPartsIsRefused) {
  Model model;
  const auto run = [&](const std::string& yaml) {
    StepResult result = model.run(yaml);
    if (yaml.empty()) result.gradient.pop_back();
    return result;
  };
  EXPECT_THROW(static_cast<void>(sense(model.trials, run, {})), Error);
}

}  // namespace
}  // namespace amaxscope::report

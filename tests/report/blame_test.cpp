// The search of `blame` over trainings whose damage is known, and how many runs it takes.
#include "report/blame.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "report/sensitivity.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> layers(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("layer" + std::to_string(i) + "x");
  return names;
}

/// A loss of 3, and 1 more when any culprit ("layer3x", "dgrad of layer3x") is quantized; seeds shift it.
class Training {
 public:
  explicit Training(std::set<std::string> culprits) : culprits_(std::move(culprits)) {}

  double operator()(const std::string& yaml, int seed) {
    ++runs;
    if (!yaml.empty()) static_cast<void>(load_config(yaml, "blame.yaml", registry_));  // it is a config
    const double clean = 3.0 + 0.05 * seed;
    for (const std::string& culprit : culprits_) {
      if (!is_high(yaml, culprit)) return std::isnan(damage) ? damage : clean + damage + 0.01 * seed;
    }
    return clean;
  }

  double damage = 1.0;
  int runs = 0;

 private:
  static bool is_high(const std::string& yaml, const std::string& culprit) {
    if (yaml == everything_in_high_precision()) return true;
    const std::size_t of = culprit.find(" of ");
    const std::string layer = of == std::string::npos ? culprit : culprit.substr(of + 4);
    // Sections of DisableQuantizationLayer and ..GEMM list their layers on the line before the feature.
    for (std::size_t at = 0; (at = yaml.find("exact_layer_names", at)) != std::string::npos; ++at) {
      const std::string section = yaml.substr(at, yaml.find("_in_high_precision:", at) - at);
      if (section.find('"' + layer + '"') == std::string::npos) continue;
      if (section.find("DisableQuantizationLayer") != std::string::npos) return true;
      if (of != std::string::npos && section.find("gemms: [" + culprit.substr(0, of)) != std::string::npos)
        return true;
    }
    return false;
  }

  std::set<std::string> culprits_;
  FeatureRegistry registry_ = builtin_features();
};

Blame find(Training& training, int count, const BlameOptions& options = {}) {
  return blame(
      layers(count), [&](const std::string& yaml, int seed) { return training(yaml, seed); }, options);
}

TEST(Blame, TheFirstSuspectIsFoundInFewRuns) {
  Training training({"layer0x"});
  const Blame result = find(training, 96);
  EXPECT_EQ(result.outcome, BlameOutcome::kFound);
  EXPECT_THAT(result.suspects, ElementsAre(Suspect{"layer0x", {}}));
  EXPECT_EQ(training.runs, 4 + 1 + 3 + 1) << "two seeds, one guess, three GEMMs, one confirmation";
  EXPECT_NEAR(result.with_suspects, 3.025, 1e-12);
  EXPECT_NEAR(result.noise, 0.005, 1e-12);  // differences 1 and 1.01
  EXPECT_THAT(as_text(result),
              HasSubstr("to blame (with less in high precision the damage stays): layer0x in"));
  EXPECT_THAT(result.yaml, HasSubstr("exact_layer_names: [\"layer0x\"]"));
}

TEST(Blame, OneGemmOfALayerDeepInTheListIsFound) {
  Training training({"dgrad of layer11x"});
  const Blame result = find(training, 16);
  EXPECT_EQ(result.outcome, BlameOutcome::kFound);
  EXPECT_THAT(result.suspects, ElementsAre(Suspect{"layer11x", {"dgrad"}}));
  EXPECT_LE(training.runs, 25);
}

TEST(Blame, TwoLayersThatAreNotNeighboursAreBothFound) {
  Training training({"layer1x", "layer6x"});
  const Blame result = find(training, 8);
  EXPECT_EQ(result.outcome, BlameOutcome::kFound);
  EXPECT_THAT(result.suspects, ElementsAre(Suspect{"layer1x", {}}, Suspect{"layer6x", {}}));
}

TEST(Blame, WhatIsNoLargerThanTheNoiseIsNoDamage) {
  Training training({"layer0x"});
  training.damage = 0.01;  // differences 0.01 and 0.02: 3 standard errors are 0.015
  const Blame result = find(training, 4);
  EXPECT_EQ(result.outcome, BlameOutcome::kNoDamage);
  EXPECT_EQ(training.runs, 4);
  EXPECT_THAT(as_text(result), HasSubstr("no damage"));
  EXPECT_EQ(result.yaml, "");
}

TEST(Blame, ARunThatEndsInNanIsMendedByWhatMakesItFinite) {
  Training training({"layer2x"});
  training.damage = std::numeric_limits<double>::quiet_NaN();
  const Blame result = find(training, 4);
  EXPECT_EQ(result.outcome, BlameOutcome::kFound);
  EXPECT_THAT(result.suspects, ElementsAre(Suspect{"layer2x", {}}));
  EXPECT_TRUE(nlohmann::json::parse(as_json(result)).at("as_configured").is_null());
}

TEST(Blame, ABudgetEndsTheSearchWithWhatIsEnough) {
  Training training({"layer5x"});
  const Blame result = find(training, 64, {.seeds = 2, .budget = 9});
  EXPECT_EQ(result.outcome, BlameOutcome::kNotMinimal);
  EXPECT_EQ(training.runs, 9);
  EXPECT_THAT(result.suspects, ::testing::Contains(Suspect{"layer5x", {}}));
  EXPECT_THAT(as_text(result), HasSubstr("the budget ended the search"));
}

TEST(Blame, RefusesWhatCannotTellNoiseFromDamage) {
  Training training({});
  EXPECT_THROW(static_cast<void>(find(training, 4, {.seeds = 1})), Error);
  EXPECT_THROW(static_cast<void>(find(training, 4, {.seeds = 4, .budget = 7})), Error);
  EXPECT_THROW(static_cast<void>(find(training, 0)), Error);
  EXPECT_EQ(training.runs, 0);
}

}  // namespace
}  // namespace amaxscope::report

// A feature made from YAML, a session's side of registration, and contexts made by hand.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "features/log_fp8_tensor_stats.hpp"
#include "features/log_tensor_stats.hpp"
#include "features/trends.hpp"
#include "runtime/config/config.hpp"
#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope::testing {

class FakeRegistration final : public Registration {
 public:
  struct Declared {
    const InspectedTensor* tensor;
    Schedule schedule;
    StatCell cell;
  };
  StatCell& declare(const InspectedTensor& tensor, const Schedule& schedule,
                    const std::function<std::unique_ptr<StatAccumulator>()>& make) override {
    declared.push_back({&tensor, schedule, {make(), make()}});
    return declared.back().cell;
  }
  StatCell& declare_over(ReduceOver, const InspectedTensor& tensor, const Schedule& schedule,
                         const std::function<std::unique_ptr<StatAccumulator>()>& make) override {
    return declare(tensor, schedule, make);
  }
  void skip(const InspectedTensor&, std::string_view statistic, std::string_view why) override {
    skipped.emplace_back(statistic);
    reasons.emplace_back(why);
  }

  /// What this rank alone would report.
  [[nodiscard]] std::vector<StatValue> values(Phase phase = Phase::kForward) const {
    std::vector<StatValue> all;
    for (const Declared& one : declared) {
      for (StatValue& value : reduce_over({&one.cell.of(phase)})) all.push_back(std::move(value));
    }
    return all;
  }
  [[nodiscard]] bool ran(Phase phase = Phase::kForward) const {
    for (const Declared& one : declared) {
      if (one.cell.of(phase).ran()) return true;
    }
    return false;
  }

  std::deque<Declared> declared;
  std::vector<std::string> skipped;
  std::vector<std::string> reasons;
};

inline FeatureRegistry logging_features() {
  FeatureRegistry registry;
  registry.add(log_tensor_stats_entry());
  registry.add(base_log_tensor_stats_entry());
  registry.add(log_fp8_tensor_stats_entry());
  registry.add(trends_entry());
  return registry;
}

/// The one feature of a config.
inline std::unique_ptr<Feature> feature_of(const std::string& yaml) {
  const FeatureRegistry registry = logging_features();
  Config config = load_config(yaml, "test.yaml", registry);
  FeatureConfig& feature = config.sections.at(0).features.at(0);
  const FeatureEntry* entry = registry.find(feature.name, feature.base_namespace);
  return entry->make(std::move(feature));
}

/// `body` is the feature's mapping in flow style, without braces.
inline std::unique_ptr<Feature> te_feature(const std::string& name, const std::string& body) {
  return feature_of("section: {enabled: true, layers: {layer_types: [all]}, transformer_engine: {" + name +
                    ": {enabled: true, " + body + "}}}");
}

inline InspectedTensor gemm_tensor(TensorKind kind, RecipeKind recipe = RecipeKind::kNone) {
  InspectedTensor tensor;
  tensor.layer = "decoder.1.fc1";
  tensor.name = to_string(kind);
  tensor.kind = kind;
  tensor.training_phase = training_phase(kind);
  tensor.recipe = recipe;
  return tensor;
}

struct Feed {
  Phase phase = Phase::kForward;
  const QuantizedTensor* rowwise = nullptr;
  const QuantizedTensor* columnwise = nullptr;
  const Quantizer* quantizer = nullptr;
  AmaxReducer* tp_amax = nullptr;
  bool has_original = true;
};

inline void inspect(Feature& feature, const InspectedTensor& tensor, const TensorView& x,
                    const Feed& feed = {}) {
  feature.inspect_tensor({.tensor = tensor,
                          .iteration = 0,
                          .moment = {.phase = feed.phase, .microbatch = 0},
                          .x = x,
                          .has_original = feed.has_original,
                          .rowwise = feed.rowwise,
                          .columnwise = feed.columnwise,
                          .quantizer = feed.quantizer,
                          .tp_amax = feed.tp_amax});
}

inline Tensor row(std::initializer_list<float> values) {
  return Tensor::of<float>(values, Shape{1, static_cast<std::int64_t>(values.size())});
}

/// The message of the Error that loading the text raises.
inline std::string load_error(const std::string& yaml) {
  try {
    static_cast<void>(load_config(yaml, "test.yaml", logging_features()));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace amaxscope::testing

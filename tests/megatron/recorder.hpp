// A feature that notes every tensor it is shown, and sessions with it.
#pragma once

#include <string>
#include <vector>

#include "features/builtin.hpp"
#include "megatron/model_support.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron::testing {

struct Seen {
  std::string what;  ///< "layer tensor layout phase microbatch"
  Shape shape;
  std::vector<double> values;
  std::vector<double> rowwise;
  std::vector<double> columnwise;
};

/// Due in every iteration but 1.
class Recorder final : public Feature {
 public:
  /// reused null: operands that are used again are not noted.
  Recorder(FeatureConfig config, std::vector<Seen>& seen, std::vector<Seen>* reused)
      : Feature(std::move(config)), seen_(seen), reused_(reused) {}
  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&,
                                                std::int64_t iteration) const override {
    return {iteration != 1, iteration + 1};
  }
  void inspect_tensor(const InspectContext& context) override { note(context, seen_); }
  void inspect_reuse(const InspectContext& context) override {
    if (reused_ != nullptr) note(context, *reused_);
  }

 private:
  static void note(const InspectContext& context, std::vector<Seen>& notes) {
    const auto decoded = [](const QuantizedTensor* operand, Direction direction) {
      return operand == nullptr ? std::vector<double>{}
                                : to_doubles(operand->dequantize(DType::kF32, direction).view());
    };
    notes.push_back({fmt::format("{} {} {} {} {}", context.tensor.layer, context.tensor.name,
                                 to_string(context.tensor.layout), to_string(context.moment.phase),
                                 context.moment.microbatch),
                     context.x.shape(), to_doubles(context.x), decoded(context.rowwise, Direction::kRowwise),
                     decoded(context.columnwise, Direction::kColumnwise)});
  }

  std::vector<Seen>& seen_;
  std::vector<Seen>* reused_;
};

inline FeatureRegistry with_recorder(std::vector<Seen>& seen, std::vector<Seen>* reused = nullptr) {
  FeatureRegistry registry = builtin_features();
  registry.add({.schema = {.name = "Recorder", .doc = "Notes what it sees."},
                .base_namespace = false,
                .make = [&seen, reused](FeatureConfig config) {
                  return std::make_unique<Recorder>(std::move(config), seen, reused);
                }});
  return registry;
}

/// All tensors of all layers.
inline constexpr const char* kRecordAll = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    Recorder: {enabled: True}
)";

inline SessionOptions session_options(const std::string& yaml) {
  SessionOptions options;
  options.config_text = yaml;
  options.deadline = std::chrono::seconds(20);
  return options;
}

inline std::vector<std::string> names(const std::vector<Seen>& seen) {
  std::vector<std::string> result;
  for (const Seen& one : seen) result.push_back(one.what);
  return result;
}

}  // namespace amaxscope::megatron::testing

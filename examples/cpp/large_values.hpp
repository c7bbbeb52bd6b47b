// A debug feature from outside the library: LargeValues counts the elements of a tensor whose magnitude is
// above a threshold, and says so when there are any. own_feature.cpp is a program that uses it, plugin.cpp
// makes a plugin of it.
#pragma once

#include <fmt/format.h>

#include <amaxscope/runtime/feature/registry.hpp>
#include <cmath>

namespace example {

class LargeValues final : public amaxscope::Feature {
 public:
  using amaxscope::Feature::Feature;

  /// It looks and changes nothing: when something fails the session stops observing and the training goes on.
  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const amaxscope::FeatureServices& services) override { warn_ = services.warn; }

  /// Depends on the config and the iteration alone, so that all ranks decide alike.
  [[nodiscard]] amaxscope::Decision inspect_tensor_enabled(const amaxscope::InspectedTensor& tensor,
                                                           std::int64_t iteration) const override {
    const amaxscope::FeatureParams* const params = config().params(std::nullopt, tensor.kind);
    return params == nullptr ? amaxscope::Decision::never()
                             : amaxscope::Decision::of(params->schedule, iteration);
  }

  void inspect_tensor(const amaxscope::InspectContext& context) override {
    const double threshold = config().params(std::nullopt, context.tensor.kind)->get_number("threshold", 0.0);
    int large = 0;
    for (const float value : context.x.values<float>()) large += std::abs(value) > threshold ? 1 : 0;
    if (large == 0) return;
    warn_(fmt::format("iteration {}: {} of {} has {} values above {}", context.iteration, context.tensor.name,
                      context.tensor.layer, large, threshold));
  }

 private:
  std::function<void(const std::string&)> warn_;
};

inline amaxscope::FeatureEntry large_values_entry() {
  return {.schema = {.name = "LargeValues",
                     .doc = "Says where values are above a threshold.",
                     .takes_tensors = true,
                     .keys = {{.name = "threshold",
                               .type = amaxscope::KeyType::kNumber,
                               .required = true,
                               .doc = "A magnitude."}}},
          .make = [](amaxscope::FeatureConfig config) {
            return std::make_unique<LargeValues>(std::move(config));
          }};
}

}  // namespace example

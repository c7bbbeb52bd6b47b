// Trends: where the amax of tensors is heading, and alarms.
#pragma once

#include <unordered_map>

#include "runtime/feature/registry.hpp"

namespace amaxscope {

class Trends final : public Feature {
 public:
  static constexpr std::int64_t kDefaultWindow = 16;
  static constexpr std::int64_t kLeastWindow = 4;
  static constexpr std::int64_t kLargestWindow = 256;  ///< the slope looks at all pairs of points

  explicit Trends(FeatureConfig config);

  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] EventAction trigger() const override { return action_; }
  /// Throws Error(kConfig) for a window over kLargestWindow.
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// Without an original (a weight that exists in FP8 only) nothing is counted.
  void inspect_tensor(const InspectContext& context) override;
  void save_state(FeatureState& state) const override;
  void load_state(const FeatureState& state) override;

 private:
  void restore(const InspectedTensor& tensor, const StatCell& cell);

  EventAction action_;

  std::unordered_map<const InspectedTensor*, const StatCell*> cells_;
  FeatureState restored_;
};

FeatureEntry trends_entry();

}  // namespace amaxscope

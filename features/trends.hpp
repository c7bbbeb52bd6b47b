// Trends: where the amax of tensors is heading, and alarms.
#pragma once

#include <unordered_map>

#include "features/kept_state.hpp"
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
  void save_state(FeatureState& state) const override { kept_.save(state); }
  void load_state(const FeatureState& state) override { kept_.load(state); }

 private:
  EventAction action_;

  std::unordered_map<const InspectedTensor*, const StatCell*> cells_;
  KeptState kept_;
};

FeatureEntry trends_entry();

}  // namespace amaxscope

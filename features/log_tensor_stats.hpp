// LogTensorStats: statistics of the high-precision tensor, in the transformer_engine namespace for the
// tensors of GEMM layers and observed tensors, in the base namespace for tensors under free names.
#pragma once

#include <unordered_map>
#include <vector>

#include "features/kept_state.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

class LogTensorStats final : public Feature {
 public:
  explicit LogTensorStats(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  /// Statistics of updates are skipped, with one warning, for everything that is no update; silently for
  /// observed parameters, whose updates are observed under the same name. Throws Error(kConfig) for a
  /// parameter out of range (a feature made without the schema's check).
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// Without an original (a weight that exists in FP8 only) nothing is counted.
  void inspect_tensor(const InspectContext& context) override;
  /// Statistics of the moments; the others are computed on the host.
  [[nodiscard]] bool captures() const override { return true; }
  /// How often channels have stood out.
  void save_state(FeatureState& state) const override { kept_.save(state); }
  void load_state(const FeatureState& state) override { kept_.load(state); }

 private:
  /// One accumulator and how it is fed.
  struct Measure {
    const StatCell* cell;
    const Schedule* due;
    void (*feed)(StatAccumulator&, const InspectContext&, const Schedule& due);
  };
  [[nodiscard]] std::vector<Measure> measures_for(const FeatureParams& params, const InspectedTensor& tensor,
                                                  Registration& registration) const;
  void keep_channels(const InspectedTensor& tensor, const StatCell& cell);

  std::unordered_map<const InspectedTensor*, std::vector<Measure>> measures_;
  KeptState kept_;
};

FeatureEntry log_tensor_stats_entry();
FeatureEntry base_log_tensor_stats_entry();

}  // namespace amaxscope

// What LogFp8TensorStats and LogNvfp4TensorStats have in common: statistics of codes against their original,
// of the codes that a GEMM gets or of what another recipe would make.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "features/deferred.hpp"
#include "features/what_if.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// A statistic's name taken apart.
struct QuantizationStatName {
  std::optional<RecipeKind> recipe;  ///< none: the running one
  std::string prefix;                ///< as logged, "fp8_current_scaling_" or empty
  std::string stat;                  ///< "mse"
  bool columnwise = false;
};

/// The statistics' documentation, for schemas.
std::vector<StatSchema> quantization_statistics();

/// Without a recipe in its name a statistic describes the codes that the GEMM gets. With one it does too when
/// that recipe runs and the plan has its codes; otherwise it answers "what if" (WhatIf), delayed scaling with
/// a history of its own. Statistics that a tensor cannot have are skipped with one warning for each (layer,
/// statistic): results are not quantized, a layer in high precision has no running recipe, one scale has no
/// blocks. Each direction is looked at by itself: where a plan kept it in high precision there are no codes,
/// and nothing is counted. A weight that exists in FP8 only has the statistics of its scales.
class QuantizationStats : public Feature {
 public:
  /// No value for a word that is no statistic; `reason` then says what is wrong with one that is almost
  /// right.
  using Parse =
      std::function<std::optional<QuantizationStatName>(std::string_view word, std::string& reason)>;

  QuantizationStats(FeatureConfig config, Parse parse)
      : Feature(std::move(config)), parse_(std::move(parse)) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { warn_ = services.warn; }
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  /// With a what-if of delayed scaling: at every iteration until the last due one, for its history.
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// For what-ifs of other recipes than the running one.
  [[nodiscard]] bool takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                        AmaxScope session_default) const override;
  void inspect_tensor(const InspectContext& context) override;
  /// Of codes under one scale; the others are measured on the host.
  [[nodiscard]] bool captures() const override { return true; }
  /// The amax histories of delayed what-ifs, the age of scales, and what rounding errors are compared with.
  void save_state(FeatureState& state) const override { kept_.save(state); }
  void load_state(const FeatureState& state) override { kept_.load(state); }

 private:
  /// Statistics that share recipe and direction, and so an accumulator.
  struct Request {
    QuantizationStatName name;
    std::vector<std::string> stats;
  };
  struct Measure {
    Request request;
    RecipeKind recipe = RecipeKind::kNone;
    const StatCell* cell = nullptr;
    float scale = 0.0F;  ///< last seen, and since when
    std::int64_t scale_since = 0;
    std::vector<float> rounding;  ///< errors away from zero of the last due iteration
    std::int64_t rounding_iteration = -1;
    /// What the host knew of the scale when kernels were enqueued: flags of codes under this scale; 0: of
    /// any.
    float noted_scale = 0.0F;
    std::vector<std::string> noted_flags = {};

    /// Scales of one step in the order in which they were met.
    struct Scales {
      float first = 0.0F;
      float last = 0.0F;
      bool changed = false;  ///< in between
    };
    /// Iterations for which the scale has been what it was at first; the oldest in the step.
    std::int64_t age_of(const Scales& scales, std::int64_t iteration);

    [[nodiscard]] KeptState::Words saved() const;
    void restore(const KeptState::Words& words);
  };
  struct TensorState {
    const FeatureParams* params = nullptr;
    std::vector<Measure> measures;
    std::map<RecipeKind, std::unique_ptr<WhatIf>> what_ifs;
    bool with_rounding = false;
  };
  /// Of one tensor, now.
  struct Now {
    const InspectContext& context;
    TensorState& state;
    std::array<std::optional<Measured>, 2> codes = {};  ///< by Direction
    std::map<RecipeKind, WhatIf::Result> what_ifs = {};
  };

  [[nodiscard]] std::vector<Request> requests_for(const FeatureParams& params, const InspectedTensor& tensor,
                                                  Registration* registration) const;
  [[nodiscard]] const Measured* measured_for(const Measure& measure, Now& now) const;
  void measure_what_if(RecipeKind recipe, Now& now) const;
  /// On a device, of codes under one scale: enqueues what counts, to be fed in step(), or finds that there is
  /// nothing to count. False: the host is to measure. Throws Error(kUsage) where it would have to in a
  /// capture.
  bool defer(Measure& measure, QuantizationAccumulator& accumulator, const Now& now) const;
  void request_running(const Float8Tensor& codes, Measure& measure, DeviceResults::Request& request,
                       const InspectContext& context) const;
  void request_what_if(const WhatIf& what_if, Measure& measure, DeviceResults::Request& request,
                       const InspectContext& context) const;
  /// In step(), what kernels have counted. iteration: none in evaluation.
  static void take(Measure& measure, QuantizationAccumulator& accumulator, const ScaledError& sum,
                   const std::string& format, std::optional<std::int64_t> iteration);
  [[nodiscard]] QuantizationSample sample_of(Measure& measure, const Measured& measured,
                                             const InspectContext& context) const;
  void feed_scales(const Measure& measure, const InspectContext& context);

  Parse parse_;
  std::function<void(const std::string&)> warn_;
  std::set<std::pair<std::string, std::string>> said_;  ///< (layer, statistic)
  std::unordered_map<const InspectedTensor*, TensorState> tensors_;
  KeptState kept_;
};

}  // namespace amaxscope

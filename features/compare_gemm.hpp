// CompareGemm: does a GEMM again in fp64 from the unquantized operands and says how far off its result is,
// and which operand is to blame.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_map>

#include "runtime/feature/registry.hpp"

namespace amaxscope {

class CompareGemm final : public Feature {
 public:
  explicit CompareGemm(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { warn_ = services.warn; }
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  /// Of the results of the listed GEMMs.
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  [[nodiscard]] bool needs_gemm_inputs() const override { return true; }
  /// Without both originals (a weight that exists in FP8 only, a layer that keeps none) nothing is counted,
  /// which is said once for each layer and result.
  void inspect_tensor(const InspectContext& context) override;

 private:
  void say_once(const InspectedTensor& tensor, std::string_view missing);

  std::unordered_map<const InspectedTensor*, const StatCell*> cells_;
  std::function<void(const std::string&)> warn_;
  std::set<const InspectedTensor*> said_;
};

FeatureEntry compare_gemm_entry();

}  // namespace amaxscope

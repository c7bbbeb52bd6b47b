// InvariantGuard: equalities that hold in every healthy run, whatever its numbers are, checked exactly.
//
// It needs no threshold, no baseline and no loss curve. Nothing it does changes a byte or adds a collective:
// what ranks compare travels with the statistics of a step. What it finds is a Finding that names the layer,
// the tensor, the ranks and the iteration, reported once for each check, layer and tensor.
#pragma once

#include <memory>
#include <vector>

#include "features/invariants/check.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

class InvariantGuard final : public Feature {
 public:
  explicit InvariantGuard(FeatureConfig config);

  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] EventAction trigger() const override { return action_; }
  void attach(const FeatureServices& services) override;
  void register_session(Registration& registration) override;
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  void inspect_tensor(const InspectContext& context) override;
  void inspect_reuse(const InspectContext& context) override;
  void inspect_scalar(std::string_view name, double value) override;
  void end_iteration(std::int64_t iteration) override;
  void save_state(FeatureState& state) const override;
  void load_state(const FeatureState& state) override;

 private:
  EventAction action_ = EventAction::kNone;
  std::vector<std::unique_ptr<InvariantCheck>> checks_;
  FeatureServices services_;
};

FeatureEntry invariant_guard_entry();

}  // namespace amaxscope

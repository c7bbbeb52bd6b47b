// Delayed scaling beside the running recipe: an amax history of one tensor for a feature that asks what it
// would do, or that uses it instead. The ranks' amaxes travel in the packed reduction of step().
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "features/kept_state.hpp"
#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope {

class DelayedHistory {
 public:
  /// name: for reports.
  DelayedHistory(DType format, std::string name);

  /// Takes part in step() from the first iteration to the schedule's last: the tensor's amax, MAX over the
  /// ranks that the recipe of a trainer reduces it over (the pipeline stage: tp, dp and cp), then one roll of
  /// the history and a new scale when the tensor ran anywhere. owner: the feature, unique for the tensor.
  void declare(const InspectedTensor& tensor, const Schedule& schedule, std::string_view owner,
               Registration& registration);
  /// To be called for every tensor that is handed in, due or not; evaluation and recompute are not counted.
  void observe(const InspectContext& context);

  /// The scale of this step, from the steps before it.
  [[nodiscard]] const DelayedScalingState::Slot& slot() const { return state_->slot(0); }

  /// Under the history's name. From then on it must stay where it is. Words of a history of another length,
  /// or that are none, throw Error(kInput) when they are loaded.
  void keep_in(KeptState& kept);

  /// When a feature with such a history looks at a tensor: at every iteration as long as the schedule has
  /// more to come.
  [[nodiscard]] static Decision looks(const Schedule& schedule, std::int64_t iteration);

 private:
  [[nodiscard]] KeptState::Words saved() const;
  void restore(const KeptState::Words& words);

  std::shared_ptr<DelayedScalingState> state_;
  const StatCell* cell_ = nullptr;
  Schedule every_step_;
};

}  // namespace amaxscope

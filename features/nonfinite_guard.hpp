// NonFiniteGuard: the first NaN or Inf of the job, with what came before it.
//
// Every rank looks at every selected tensor when it is handed in, values and codes, and keeps the last few it
// has seen. At the end of the step the ranks find out which of them saw one first, in the order of the
// program, and that one is reported: it is the cause, the others caught it.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/feature/registry.hpp"

namespace amaxscope {

class NonFiniteGuard final : public Feature {
 public:
  explicit NonFiniteGuard(FeatureConfig config);

  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { services_ = services; }
  void register_session(Registration& registration) override;
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  void inspect_tensor(const InspectContext& context) override;
  void inspect_reuse(const InspectContext& context) override;
  [[nodiscard]] EventAction trigger() const override { return action_; }
  void recent(const std::function<void(RecentTensor)>& take) const override;

  /// A tensor as it went by.
  struct Frame {
    const InspectedTensor* tensor = nullptr;
    TensorMoment moment;
    std::int64_t iteration = 0;
    float amax = 0;  ///< of its finite elements
    std::uint64_t nonfinite = 0;
    bool reused = false;  ///< codes that were made before; their values were not looked at again
  };
  struct Seen;  ///< the first non-finite element of this rank in a step

 private:
  void look(const InspectContext& context, bool reuse);
  void found(const InspectContext& context, Seen seen);
  void dump(const InspectContext& context);

  EventAction action_ = EventAction::kNone;
  std::size_t last_ = 20;
  FeatureServices services_;
  std::deque<Frame> frames_;
  std::vector<const InspectedTensor*> tensors_;  ///< in the order of registration: the same on all ranks
  std::list<InspectedTensor> job_;               ///< what the comparison over ranks is declared for
  StatCell* cell_ = nullptr;
  std::uint32_t sequence_ = 0;  ///< tensors looked at in this step
  std::int64_t iteration_ = -1;
  bool reported_ = false;  ///< the first of this rank has been; everything later follows from it
};

FeatureEntry nonfinite_guard_entry();

}  // namespace amaxscope

#include "features/delayed_history.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/amax.hpp"

namespace amaxscope {

namespace {

/// One amax on its way through the packed reduction; what comes back ends a step of the history.
class AmaxOfStep final : public StatAccumulator {
 public:
  AmaxOfStep(std::string owner, std::shared_ptr<DelayedScalingState> state)
      : owner_(std::move(owner)), state_(std::move(state)) {}

  void feed(std::uint32_t amax) {
    mark_ran(true);
    amax_ = std::max(amax_, amax);
  }
  [[nodiscard]] std::string id() const override { return fmt::format("delayed_history {}", owner_); }
  void reset() override {
    amax_ = 0;
    mark_ran(false);
  }
  [[nodiscard]] std::size_t max_words() const override { return 1; }
  void pack_max(std::span<std::uint32_t> out) const override { out[0] = amax_; }
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override {
    state_->observe(0, reduced.max[0]);
    state_->update();
    return {};
  }

 private:
  std::string owner_;
  std::shared_ptr<DelayedScalingState> state_;
  std::uint32_t amax_ = 0;
};

}  // namespace

DelayedHistory::DelayedHistory(DType format, std::string name)
    : state_(std::make_shared<DelayedScalingState>(DelayedScalingOptions{}, nullptr)) {
  state_->add(std::move(name), format);
}

void DelayedHistory::declare(const InspectedTensor& tensor, const Schedule& schedule, std::string_view owner,
                             Registration& registration) {
  const Schedule every_step(1, {{.start = 0, .end = schedule.intervals().back().end}});
  cell_ = &registration.declare_over(ReduceOver::kStage, tensor, every_step, [&] {
    return std::make_unique<AmaxOfStep>(std::string(owner), state_);
  });
}

void DelayedHistory::observe(const InspectContext& context) {
  const Phase phase = context.moment.phase;
  if (cell_ == nullptr || !context.has_original || phase == Phase::kEval || phase == Phase::kRecompute)
    return;
  static_cast<AmaxOfStep&>(*cell_->train).feed(context.x.numel() == 0 ? 0U : amax_bits(context.x));
}

Decision DelayedHistory::looks(const Schedule& schedule, std::int64_t iteration) {
  if (!schedule.next_due(iteration)) return Decision::never();
  return {true, iteration + 1};
}

}  // namespace amaxscope

#include "features/delayed_history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "features/deferred.hpp"
#include "kernels/amax.hpp"
#include "kernels/device_kernels.hpp"

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
  every_step_ = Schedule(1, {{.start = 0, .end = schedule.intervals().back().end}});
  cell_ = &registration.declare_over(ReduceOver::kStage, tensor, every_step_, [&] {
    return std::make_unique<AmaxOfStep>(std::string(owner), state_);
  });
}

void DelayedHistory::observe(const InspectContext& context) {
  const Phase phase = context.moment.phase;
  if (cell_ == nullptr || !context.has_original || phase == Phase::kEval || phase == Phase::kRecompute)
    return;
  auto& amax = static_cast<AmaxOfStep&>(*cell_->train);
  if (!context.defers()) return amax.feed(context.amax());
  DeviceResults::Request request = deferred(context, amax, every_step_);
  request.key.owner = this;
  request.bytes = sizeof(Accumulated<std::uint32_t>);
  request.once = false;  // weights too are looked at each time
  request.launch = [&x = context.x](const ResultSlot& slot) { device_kernels("amax", x)->add_amax(x, slot); };
  request.take = [&amax](const std::byte* accumulated, std::int64_t) {
    amax.feed(result_at<std::uint32_t>(accumulated));
  };
  context.device_results->add(context.x, std::move(request));
}

void DelayedHistory::keep_in(KeptState& kept) {
  kept.keep(
      slot().name, [this] { return saved(); }, [this](const KeptState::Words& words) { restore(words); });
}

KeptState::Words DelayedHistory::saved() const {
  KeptState::Words words = {std::bit_cast<std::uint32_t>(slot().scale),
                            static_cast<std::uint64_t>(slot().clamp),
                            static_cast<std::uint64_t>(slot().has_history)};
  words.insert(words.end(), slot().history.begin(), slot().history.end());
  return words;
}

void DelayedHistory::restore(const KeptState::Words& words) {
  constexpr std::size_t kBeforeHistory = 3;
  AMAXSCOPE_CHECK(words.size() == kBeforeHistory + slot().history.size(), ErrorCode::kInput,
                  "the saved amax history of {} has {} words, expected {}", slot().name, words.size(),
                  kBeforeHistory + slot().history.size());
  AMAXSCOPE_CHECK(words[1] <= static_cast<std::uint64_t>(ScaleClamp::kScaleClamped), ErrorCode::kInput,
                  "the saved amax history of {} says {} of how its scale came about; 0 to {} are known",
                  slot().name, words[1], static_cast<int>(ScaleClamp::kScaleClamped));
  DelayedScalingState::Slot restored = slot();
  restored.scale = std::bit_cast<float>(static_cast<std::uint32_t>(words[0]));
  restored.clamp = static_cast<ScaleClamp>(words[1]);
  restored.has_history = words[2] != 0;
  for (std::size_t i = 0; i < restored.history.size(); ++i) {
    restored.history[i] = static_cast<std::uint32_t>(words[kBeforeHistory + i]);
  }
  state_->restore(0, std::move(restored));
}

Decision DelayedHistory::looks(const Schedule& schedule, std::int64_t iteration) {
  if (!schedule.next_due(iteration)) return Decision::never();
  return {true, iteration + 1};
}

}  // namespace amaxscope

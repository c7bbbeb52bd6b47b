// I6: the delayed-scaling scale in use is the one that the recorded history gives, and the history rolls once
// a step when the layer ran. I9: a restart brings back the histories and scales that were saved.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>

#include "features/invariants/check.hpp"
#include "features/kept_state.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope {

namespace {

using Slot = DelayedScalingState::Slot;
constexpr std::int64_t kNever = -2;  // not the one before any iteration

/// Rows first .. last of a history, both inclusive.
std::uint64_t rows_hash(const Slot& slot, std::size_t first, std::size_t last) {
  if (first > last) return 0;
  const std::size_t rows = last - first + 1;
  return content_hash(
      TensorView(slot.history.data() + first, DType::kU32, {static_cast<std::int64_t>(rows)}));
}

/// Codes that the recipe made and no feature; null when there are none.
const Float8Tensor* codes_of_recipe(const InspectContext& context) {
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    const QuantizedTensor* member = context.operand(direction);
    const auto* codes = dynamic_cast<const Float8Tensor*>(member);
    if (codes != nullptr && !context.is_modified(direction)) return codes;
  }
  return nullptr;
}

/// The quantizer of a tensor whose codes are the work of delayed scaling; null otherwise.
const Float8Quantizer* delayed_of(const InspectContext& context) {
  if (context.quantizer == nullptr || context.moment.phase == Phase::kRecompute) return nullptr;
  const auto* quantizer = dynamic_cast<const Float8Quantizer*>(&context.quantizer->unwrapped());
  return quantizer != nullptr && codes_of_recipe(context) != nullptr ? quantizer : nullptr;
}

struct Seen {
  std::int64_t iteration = kNever;
  std::uint32_t collected = 0;  ///< this rank's part of the step's amax, row 0
  std::uint32_t oldest = 0;     ///< row 1: dropped by the next roll, after it counted once more
  std::uint64_t rows = 0;       ///< fingerprint of rows 1 .. L-1
  std::uint64_t kept = 0;       ///< of rows 2 .. L-1, which a roll moves down by one
  float scale = 1.0F;
};

class HistoryCheck final : public InvariantCheck {
 public:
  HistoryCheck() : InvariantCheck("I6") {}

  void inspect(const InspectContext& context) override {
    const Float8Quantizer* quantizer = delayed_of(context);
    if (quantizer == nullptr || context.moment.phase == Phase::kEval) return;
    const Slot& slot = quantizer->slot();
    const std::size_t last = slot.history.size() - 1;
    check_use(context, slot);
    Seen& before = seen_[&context.tensor];
    if (before.iteration == context.iteration) {  // a later micro-batch
      before.collected = std::max(before.collected, slot.history.front());
      return;
    }
    std::optional<bool> rolled;
    if (before.iteration == context.iteration - 1 && last >= 1) rolled = has_rolled(context, slot, before);
    check_scale(context, *quantizer, before, rolled);
    before = {.iteration = context.iteration,
              .collected = slot.history.front(),
              .oldest = last >= 1 ? slot.history[1] : 0,
              .rows = rows_hash(slot, 1, last),
              .kept = rows_hash(slot, 2, last),
              .scale = slot.scale};
  }

 private:
  /// None when it is neither rolled nor as it was, which is then reported.
  std::optional<bool> has_rolled(const InspectContext& context, const Slot& slot, const Seen& before) {
    const std::size_t last = slot.history.size() - 1;
    count();
    const bool moved = rows_hash(slot, 1, last - 1) == before.kept && slot.history[last] >= before.collected;
    if (moved && slot.history[last] != 0) return true;
    const bool still = rows_hash(slot, 1, last) == before.rows;
    if (still && before.collected == 0) return false;
    fail(context,
         still ? fmt::format(
                     "the amax history did not roll after iteration {}, although the layer ran with amax "
                     "{:.9g}",
                     before.iteration, std::bit_cast<float>(before.collected))
               : fmt::format(
                     "the amax history is not what iteration {} left, moved on by one: its newest entry is "
                     "{:.9g}, this rank collected {:.9g}",
                     before.iteration, std::bit_cast<float>(slot.history[last]),
                     std::bit_cast<float>(before.collected)),
         {{"newest", fmt::format("{:.9g}", std::bit_cast<float>(slot.history[last]))},
          {"collected", fmt::format("{:.9g}", std::bit_cast<float>(before.collected))}});
    return std::nullopt;
  }

  /// The codes are under the slot's scale, and scale and scale_inv belong together.
  void check_use(const InspectContext& context, const Slot& slot) {
    const Float8Tensor& codes = *codes_of_recipe(context);
    count();
    if (codes.scale() == slot.scale && codes.scale_inv() == scale_inverse(slot.scale)) return;
    fail(context,
         fmt::format("the scale in use is {:.9g} (1 / {:.9g}), the recipe's is {:.9g}", codes.scale(),
                     1.0 / double{codes.scale_inv()}, slot.scale),
         {{"scale", fmt::format("{:.9g}", codes.scale())}, {"expected", fmt::format("{:.9g}", slot.scale)}});
  }

  /// The scale comes from the newest entry and the L-1 before it, the oldest of which is gone by now: without
  /// a look at the step before, any oldest entry may have been the largest, and the scale at most what the
  /// rest gives.
  void check_scale(const InspectContext& context, const Float8Quantizer& quantizer, const Seen& before,
                   std::optional<bool> rolled) {
    const Slot& slot = quantizer.slot();
    const DelayedScalingOptions& options = quantizer.options();
    if (slot.clamp == ScaleClamp::kInfAmax || slot.history.size() < 2) return;
    count();
    const auto report = [&](float expected, std::string_view relation) {
      fail(context,
           fmt::format("the scale in use is {:.9g}, the recorded history gives {}{:.9g}", slot.scale,
                       relation, expected),
           {{"scale", fmt::format("{:.9g}", slot.scale)}, {"expected", fmt::format("{:.9g}", expected)}});
    };
    const std::uint32_t newest = slot.history.back();
    if (newest == 0) {
      if (!slot.has_history && slot.scale != 1.0F) report(1.0F, "");
      return;
    }
    if (rolled == false) {
      if (slot.scale != before.scale) report(before.scale, "");
      return;
    }
    const bool most_recent = options.algorithm == AmaxAlgorithm::kMostRecent;
    std::uint32_t amax =
        most_recent ? newest : *std::max_element(slot.history.begin() + 1, slot.history.end());
    const bool complete = most_recent || rolled == true || slot.history[1] == 0;
    if (!most_recent && rolled == true) amax = std::max(amax, before.oldest);
    const float expected = scale_with_margin(amax, slot.format, options.margin).scale;
    if (complete ? slot.scale != expected : slot.scale > expected)
      report(expected, complete ? "" : "at most ");
  }

  std::unordered_map<const InspectedTensor*, Seen> seen_;
};

/// Watches the slots only for what save_state has to remember and load_state to compare.
class RestartCheck final : public InvariantCheck {
 public:
  RestartCheck() : InvariantCheck("I9") {}

  void inspect(const InspectContext& context) override {
    const Float8Quantizer* quantizer = delayed_of(context);
    if (quantizer == nullptr) return;
    const std::string key = key_of(context.tensor);
    quantizers_.insert_or_assign(key, quantizer);
    const std::optional<KeptState::Words> expected = restored_.take("I9 " + key);
    if (!expected) return;
    const KeptState::Words& saved = *expected;
    const Slot& slot = quantizer->slot();
    count();
    const std::vector<std::uint64_t> now = state_of(slot);
    if (saved == now) return;
    const bool scale_differs = saved.empty() || saved[0] != now[0];
    fail(context,
         scale_differs
             ? fmt::format("after the restart the scale is {:.9g}, saved was {:.9g}", slot.scale,
                           saved.empty() ? 0.0F : std::bit_cast<float>(static_cast<std::uint32_t>(saved[0])))
             : std::string("after the restart the amax history is another one than was saved"),
         {{"scale", fmt::format("{:.9g}", slot.scale)}});
  }

  void save_state(FeatureState& state) const override {
    for (const auto& [key, quantizer] : quantizers_) state["I9 " + key] = state_of(quantizer->slot());
  }
  void load_state(const FeatureState& state) override { restored_.load(state); }

 private:
  static std::string key_of(const InspectedTensor& tensor) {
    return fmt::format("{} {}", tensor.layer, tensor.name);
  }
  static std::vector<std::uint64_t> state_of(const Slot& slot) {
    return {std::bit_cast<std::uint32_t>(slot.scale), rows_hash(slot, 1, slot.history.size() - 1)};
  }

  std::map<std::string, const Float8Quantizer*> quantizers_;
  KeptState restored_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_history_check() { return std::make_unique<HistoryCheck>(); }
std::unique_ptr<InvariantCheck> make_restart_check() { return std::make_unique<RestartCheck>(); }

}  // namespace amaxscope

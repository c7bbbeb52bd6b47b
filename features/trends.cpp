#include "features/trends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "features/inspecting.hpp"
#include "features/quantization_measure.hpp"
#include "features/triggers.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/stats/trend_accumulator.hpp"

namespace amaxscope {

namespace {

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 65504.0;
    case DType::kBF16:
      return 0x1.FEp127;
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}

constexpr std::string_view kUnderflowBound = "underflow_bound";

/// The codes of one direction stand for those of both. Blocks are counted on the host.
void feed_codes(const InspectContext& seen, TrendAccumulator& trend) {
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    const QuantizedTensor* const made = codes_in(seen.operand(direction), direction);
    if (made == nullptr) continue;
    const bool has_blocks = dynamic_cast<const Float8Tensor*>(made) == nullptr;
    const InspectContext& context = has_blocks ? seen.on_host() : seen;
    const QuantizationError error = measure_codes(context.x, *codes_in(context.operand(direction), direction),
                                                  direction, context.quantizer, /*with_rounding=*/false)
                                        .error.elements;
    trend.feed_codes(error.underflows, error.numel);
    return;
  }
}

std::string key_of(const InspectedTensor& tensor, Phase phase) {
  return fmt::format("{} {} {}", tensor.layer, tensor.name, phase == Phase::kEval ? "eval" : "train");
}

/// A scale in use under delayed scaling stays as it is until the history changes; any other was made for this
/// very tensor.
MagnitudeLimit limit_of(const InspectContext& context) {
  const auto* codes = dynamic_cast<const Float8Tensor*>(context.rowwise);
  if (codes == nullptr) codes = dynamic_cast<const Float8Tensor*>(context.columnwise);
  if (codes == nullptr) return {.value = largest_of(context.x.dtype())};
  MagnitudeLimit limit{.value = static_cast<double>(fp8_max(codes->format(Direction::kRowwise))) /
                                static_cast<double>(codes->scale()),
                       .moves = true,
                       .of_codes = true};
  const Quantizer* recipe = context.quantizer == nullptr ? nullptr : &context.quantizer->unwrapped();
  if (const auto* delayed = dynamic_cast<const Float8Quantizer*>(recipe)) {
    const DelayedScalingState::Slot& slot = delayed->slot();
    limit.moves = slot.scale != codes->scale();
    limit.no_history = !limit.moves && !slot.has_history;
  }
  return limit;
}

}  // namespace

Trends::Trends(FeatureConfig config) : Feature(std::move(config)), action_(action_of(*this)) {}

void Trends::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  const std::int64_t window = params->get_integer("window", kDefaultWindow);
  AMAXSCOPE_CHECK(window >= kLeastWindow && window <= kLargestWindow, ErrorCode::kConfig,
                  "{}: window is {}; allowed is {} to {} due steps", label(), window, kLeastWindow,
                  kLargestWindow);
  const std::vector<std::string> alarms = params->get_strings("alarm");
  const double bound = params->get_number(kUnderflowBound, TrendAccumulator::kUnderflowPercent);
  AMAXSCOPE_CHECK(bound >= 0 && bound < 100, ErrorCode::kConfig,
                  "{}: {} is {}; allowed is from 0 to below 100 (percent)", label(), kUnderflowBound, bound);
  AMAXSCOPE_CHECK(
      params->find(kUnderflowBound) == nullptr || std::ranges::find(alarms, "underflow") != alarms.end(),
      ErrorCode::kConfig, "{}: {} is given, but underflow is not in the list of alarms", label(),
      kUnderflowBound);
  cells_.insert_or_assign(&tensor, &registration.declare(tensor, params->schedule, [&] {
    return std::make_unique<TrendAccumulator>(static_cast<int>(window),
                                              std::set<std::string>(alarms.begin(), alarms.end()), bound);
  }));
  for (const Phase phase : {Phase::kForward, Phase::kEval}) {
    auto& trend = static_cast<TrendAccumulator&>(cells_.at(&tensor)->of(phase));
    kept_.keep(
        key_of(tensor, phase), [&trend] { return trend.saved(); },
        [&trend](const KeptState::Words& words) { trend.restore(words); });
  }
}

Decision Trends::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

void Trends::inspect_tensor(const InspectContext& context) {
  const auto found = cells_.find(&context.tensor);
  if (found == cells_.end()) return;
  auto& trend = static_cast<TrendAccumulator&>(found->second->of(context.moment.phase));
  if (!counts(context, trend)) return;
  trend.feed(context.moments(), limit_of(context));
  if (trend.counts_underflows()) feed_codes(context, trend);
}

FeatureEntry trends_entry() {
  FeatureSchema schema;
  schema.name = "Trends";
  schema.doc =
      "Logs where the amax of tensors is heading over the due steps: slope of log2 amax, headroom in bits, "
      "steps "
      "to saturation, reversals, jumps, change points; an alarm is reported once, when it first holds.";
  schema.takes_tensors = true;
  schema.addition = true;
  schema.keys = {{.name = "window",
                  .type = KeyType::kInteger,
                  .default_text = "16",
                  .doc = "How many of the last due steps slope, jump and reversals look at; at most 256.",
                  .minimum = Trends::kLeastWindow,
                  .addition = true},
                 {.name = "alarm",
                  .type = KeyType::kStringList,
                  .default_text = "",
                  .doc = "Conditions that are reported for a tensor when they first hold.",
                  .allowed = TrendAccumulator::known_alarms(),
                  .addition = true},
                 {.name = std::string(kUnderflowBound),
                  .type = KeyType::kNumber,
                  .default_text = "10",
                  .doc = "Alarm underflow: percent of a step's elements that are not 0 and whose codes are.",
                  .addition = true},
                 action_key("What the job does about an alarm")};
  return {.schema = std::move(schema), .base_namespace = false, .make = [](FeatureConfig config) {
            return std::make_unique<Trends>(std::move(config));
          }};
}

}  // namespace amaxscope

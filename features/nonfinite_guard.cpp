#include "features/nonfinite_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "features/inspecting.hpp"
#include "features/nonfinite_guard_first.hpp"
#include "features/triggers.hpp"
#include "kernels/finite_scan.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kLast = "last";
constexpr std::int64_t kDefaultLast = 20;

/// Codes and scales of one direction; what they decode to is finite when they are and the scale is.
FiniteScan scan_operand(const QuantizedTensor& tensor, Direction direction) {
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(&tensor)) {
    if (!codes->usage().has(direction)) return {};
    return finite_scan(codes->codes(direction));
  }
  if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&tensor)) {
    if (!blocks->usage().has(direction)) return {};
    const BlockScaledView view = blocks->blocks(direction);
    if (view.layout.format != DType::kE2M1) {
      if (const FiniteScan codes = finite_scan(view.codes); codes.first >= 0) return codes;
    }
    const TensorView scales(view.scales.data(), view.layout.scale_format, view.scales.shape(),
                            view.scales.device(), view.scales.stream());
    return finite_scan(scales);
  }
  return {};
}

std::string frame_text(const NonFiniteGuard::Frame& frame) {
  const std::string what = frame.reused ? ", its codes again" : fmt::format(", amax {:.6g}", frame.amax);
  return fmt::format("iteration {} {} micro-batch {}: {} {}{}{}", frame.iteration,
                     to_string(frame.moment.phase), frame.moment.microbatch, frame.tensor->layer,
                     frame.tensor->name, what,
                     frame.nonfinite == 0 ? "" : fmt::format(", {} not finite", frame.nonfinite));
}

}  // namespace

NonFiniteGuard::NonFiniteGuard(FeatureConfig config) : Feature(std::move(config)) {
  const FeatureParams& outer = this->config().outer;
  action_ = action_of(*this);
  last_ = static_cast<std::size_t>(outer.get_integer(kLast, kDefaultLast));
}

void NonFiniteGuard::register_session(Registration& registration) {
  InspectedTensor& job = job_.emplace_back();
  job.layer = "nonfinite";
  job.name = "first of section " + config().section;
  cell_ = &registration.declare_over(ReduceOver::kStage, job, config().outer.schedule,
                                     [this] { return std::make_unique<FirstSeen>(tensors_); });
}

void NonFiniteGuard::register_tensor(const InspectedTensor& tensor, Registration&) {
  if (params_of_inspected(config(), tensor) != nullptr) tensors_.push_back(&tensor);
}

Decision NonFiniteGuard::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

void NonFiniteGuard::inspect_tensor(const InspectContext& context) { look(context, /*reuse=*/false); }
void NonFiniteGuard::inspect_reuse(const InspectContext& context) { look(context, /*reuse=*/true); }

void NonFiniteGuard::look(const InspectContext& seen, bool reuse) {
  if (seen.moment.phase == Phase::kEval) return;
  const InspectContext& context = seen.on_host();
  if (iteration_ != context.iteration) {
    iteration_ = context.iteration;
    sequence_ = 0;
  }
  ++sequence_;
  const FiniteScan values = context.has_original && !reuse ? finite_scan(context.x) : FiniteScan{};
  frames_.push_back({&context.tensor, context.moment, context.iteration, values.amax, values.count, reuse});
  if (frames_.size() > last_ + 1) frames_.pop_front();
  if (reported_) return;
  if (values.first >= 0) {
    found(context, {.place = Seen::Place::kValues, .scan = values});
    return;
  }
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    const QuantizedTensor* member = context.operand(direction);
    if (member == nullptr) continue;
    const FiniteScan codes = scan_operand(*member, direction);
    if (codes.first < 0) continue;
    found(context, {.place = direction == Direction::kRowwise ? Seen::Place::kRowwiseCodes
                                                              : Seen::Place::kColumnwiseCodes,
                    .scan = codes});
    return;
  }
}

void NonFiniteGuard::found(const InspectContext& context, Seen seen) {
  reported_ = true;
  const auto index = std::ranges::find(tensors_, &context.tensor);
  seen.tensor = static_cast<std::uint32_t>(index - tensors_.begin());
  seen.sequence = sequence_;
  seen.moment = context.moment;
  static_cast<FirstSeen&>(*cell_->train).feed(seen);
  std::string text = fmt::format(
      "{} of {} at iteration {}, {}, micro-batch {}: {}; the last {} tensors before it:", context.tensor.name,
      context.tensor.layer, context.iteration, to_string(context.moment.phase), context.moment.microbatch,
      seen.text(), frames_.size() - 1);
  for (auto frame = frames_.rbegin() + 1; frame < frames_.rend(); ++frame)
    text += "\n  " + frame_text(*frame);
  services_.warn(text);
  if (action_ == EventAction::kDump) dump(context);
}

void NonFiniteGuard::dump(const InspectContext& context) {
  if (services_.log_dir.empty()) return;
  const std::filesystem::path folder = services_.log_dir / "nonfinite";
  std::filesystem::create_directories(folder);
  const std::filesystem::path file =
      folder / fmt::format("rank_{}_iteration_{:06}.safetensors", services_.world_rank, context.iteration);
  std::vector<NamedTensor> tensors;
  std::list<Tensor> decoded;
  if (context.has_original) tensors.push_back({"high_precision", context.x});
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    const QuantizedTensor* member = context.operand(direction);
    if (member == nullptr || !member->usage().has(direction)) continue;
    tensors.push_back({fmt::format("{}_dequantized", to_string(direction)),
                       decoded.emplace_back(member->dequantize(DType::kF32, direction)).view()});
  }
  write_safetensors(file, tensors,
                    {{"layer", context.tensor.layer},
                     {"tensor", context.tensor.name},
                     {"iteration", fmt::format("{}", context.iteration)},
                     {"microbatch", fmt::format("{}", context.moment.microbatch)},
                     {"phase", std::string(to_string(context.moment.phase))},
                     {"rank", fmt::format("{}", services_.world_rank)}});
  services_.warn(
      fmt::format("{} of {} as it was is in {}", context.tensor.name, context.tensor.layer, file.string()));
}

void NonFiniteGuard::recent(const std::function<void(RecentTensor)>& take) const {
  for (const Frame& frame : frames_) {
    RecentTensor seen{.iteration = frame.iteration,
                      .layer = frame.tensor->layer,
                      .tensor = frame.tensor->name,
                      .phase = frame.moment.phase,
                      .microbatch = frame.moment.microbatch,
                      .values = {}};
    if (!frame.reused) {
      seen.values = {{"finite_amax", frame.amax}, {"nonfinite", static_cast<double>(frame.nonfinite)}};
    }
    take(std::move(seen));
  }
}

FeatureEntry nonfinite_guard_entry() {
  FeatureSchema schema;
  schema.name = "NonFiniteGuard";
  schema.doc =
      "Finds the first NaN or Inf of the job, in values or codes: iteration, rank, layer, tensor, index, and "
      "the "
      "last tensors before it.";
  schema.takes_tensors = true;
  schema.addition = true;
  schema.keys = {
      action_key("What the job does about the first NaN or Inf (dump: the tensor itself is in nonfinite/)"),
      {.name = std::string(kLast),
       .type = KeyType::kInteger,
       .default_text = std::to_string(kDefaultLast),
       .doc = "How many tensors before it are listed.",
       .minimum = 0,
       .addition = true}};
  return {.schema = std::move(schema),
          .make = [](FeatureConfig config) { return std::make_unique<NonFiniteGuard>(std::move(config)); }};
}

}  // namespace amaxscope

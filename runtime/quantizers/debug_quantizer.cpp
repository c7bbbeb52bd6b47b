#include "runtime/quantizers/debug_quantizer.hpp"

#include <algorithm>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "runtime/quantizers/kept_threads.hpp"
#include "runtime/stats/device_results.hpp"

namespace amaxscope {

namespace {

bool contains(const std::vector<Feature*>& features, const Feature* feature) {
  return std::ranges::find(features, feature) != features.end();
}

InspectedTensor describe(const LayerDescription& layer, TensorKind tensor) {
  return {.layer = layer.name,
          .name = std::string(to_string(tensor)),
          .kind = tensor,
          .description = &layer,
          .layout = layout_of(layer, tensor),
          .tp_group = layer.tp_group,
          .training_phase = training_phase(tensor),
          .recipe = layer.recipe,
          .same_over_dp = tensor == TensorKind::kWeight};
}

/// The tensor itself when it has the compute dtype already.
std::shared_ptr<QuantizedTensor> in_high_precision(const TensorView& x, DType dtype) {
  if (x.dtype() == dtype) return std::make_shared<HighPrecisionTensor>(x);
  Tensor converted = Tensor::beside(x, dtype, x.shape());
  convert(x, converted);
  return std::make_shared<HighPrecisionTensor>(std::move(converted));
}

}  // namespace

DebugQuantizer::DebugQuantizer(const LayerDescription& layer, TensorKind tensor,
                               std::shared_ptr<Quantizer> parent, std::vector<Feature*> features,
                               const DebugServices& services)
    : layer_(layer),
      tensor_(tensor),
      parent_(std::move(parent)),
      features_(std::move(features)),
      services_(services),
      inspected_(describe(layer, tensor)) {
  AMAXSCOPE_CHECK(parent_ == nullptr || !is_result(tensor), ErrorCode::kUsage,
                  "layer {}: {} is the result of a GEMM; quantized results are not supported", layer.name,
                  to_string(tensor));
}

void DebugQuantizer::begin_iteration(std::int64_t iteration) {
  if (plan_.iteration == iteration) return;
  const bool has_quantizer = parent_ != nullptr;
  if (ahead_ && ahead_->iteration == iteration) {
    plan_ = std::move(*ahead_);
  } else {
    plan_ = plan_tensor(inspected_, has_quantizer, features_, iteration);
  }
  ahead_.reset();
  const std::int64_t following = iteration + 1;
  if (!plan_.differs) {
    next_ = plan_.next;
  } else if (plan_.next != following) {
    next_ = following;  // the same answers hold there
  } else {
    next_ = following;
    try {
      ahead_ = plan_tensor(inspected_, has_quantizer, features_, following);
      if (!ahead_->differs) next_ = ahead_->next;
    } catch (const std::exception&) {
      // Planning that iteration fails; it will say so when it is its turn.
    }
  }
}

void DebugQuantizer::begin_capture(std::int64_t iteration) {
  TensorPlan plan = plan_capture(inspected_, parent_ != nullptr, features_, iteration);
  captured_ = plan;
  before_capture_ = std::exchange(plan_, std::move(plan));
}

void DebugQuantizer::end_capture() {
  if (!before_capture_) return;
  plan_ = std::move(*before_capture_);
  before_capture_.reset();
}

std::string DebugQuantizer::changed_since_capture(std::int64_t iteration) {
  if (!captured_ || !captured_->directions_next || iteration < *captured_->directions_next) return {};
  TensorPlan now = plan_tensor(inspected_, parent_ != nullptr, features_, iteration);
  for (const Direction wanted : {Direction::kRowwise, Direction::kColumnwise}) {
    const DirectionPlan& planned = now.directions[static_cast<std::size_t>(wanted)];
    const DirectionPlan& captured = captured_->directions[static_cast<std::size_t>(wanted)];
    if (planned.plan == captured.plan && planned.modifier == captured.modifier &&
        planned.params == captured.params)
      continue;
    const auto name = [](const DirectionPlan& plan) {
      return plan.modifier == nullptr ? std::string(to_string(plan.plan)) : plan.modifier->label();
    };
    return fmt::format("{} of {} in {} is to go through {} and was captured with {}", inspected_.name,
                       layer_.name, to_string(*gemm_of(tensor_, wanted)), name(planned), name(captured));
  }
  captured_->directions_next = now.directions_next;
  return {};
}

void DebugQuantizer::require_capturable(const Feature& feature, const TensorView* original) const {
  if (device_results_ == nullptr || !device_results_->capturing()) return;
  AMAXSCOPE_CHECK(feature.captures(), ErrorCode::kUsage, "it needs the host for every tensor it looks at");
  AMAXSCOPE_CHECK(original == nullptr || original->device().kind != DeviceKind::kCpu, ErrorCode::kUsage,
                  "it is on the host, where a replay does nothing");
}

void DebugQuantizer::require_begun() const {
  AMAXSCOPE_CHECK(plan_.iteration >= 0, ErrorCode::kUsage,
                  "layer {}: {} is used before its first iteration began", layer_.name, inspected_.name);
}

std::vector<std::string> DebugQuantizer::acting_features() const {
  std::vector<std::string> names;
  for (const Feature* feature : features_) {
    bool acts = contains(plan_.inspecting, feature);
    for (const DirectionPlan& plan : plan_.directions) {
      acts = acts || plan.modifier == feature || contains(plan.disabling, feature);
    }
    if (acts) names.push_back(feature->config().name);
  }
  return names;
}

TensorView DebugQuantizer::with_threads(const TensorView& x) const {
  return services_.threads == nullptr ? x : with_default_stream(x, services_.threads->stream());
}

std::shared_ptr<QuantizedTensor> DebugQuantizer::made(std::shared_ptr<QuantizedTensor> operand) const {
  return with_threads_kept(std::move(operand), services_.threads);
}

std::shared_ptr<QuantizedTensor> DebugQuantizer::quantize(const TensorView& given, Usage usage,
                                                          const TensorMoment& moment) {
  const TensorView x = with_threads(given);
  std::shared_ptr<DebugQuantizedTensor> result = make(x, usage, moment, nullptr);
  inspect(&x, result.get(), moment);
  return result;
}

void DebugQuantizer::update(const TensorView& given, QuantizedTensor& target, const TensorMoment& moment) {
  const TensorView x = with_threads(given);
  auto* previous = dynamic_cast<DebugQuantizedTensor*>(&target);
  AMAXSCOPE_CHECK(
      previous != nullptr, ErrorCode::kUsage,
      "layer {}: {} can only be updated into what a debug quantizer made; outside of debug iterations "
      "quantize anew",
      layer_.name, inspected_.name);
  AMAXSCOPE_CHECK(previous->shape() == x.shape(), ErrorCode::kTensor,
                  "layer {}: {} of shape {} updated from {}", layer_.name, inspected_.name,
                  to_string(previous->shape()), to_string(x.shape()));
  *previous = std::move(*make(x, previous->usage(), moment, previous));
  inspect(&x, previous, moment);
}

std::shared_ptr<DebugQuantizedTensor> DebugQuantizer::make(const TensorView& x, Usage usage,
                                                           const TensorMoment& moment,
                                                           const DebugQuantizedTensor* previous) {
  AMAXSCOPE_CHECK(!is_result(tensor_), ErrorCode::kUsage,
                  "layer {}: {} is the result of a GEMM and not quantized; use process_gemm_output",
                  layer_.name, inspected_.name);
  require_begun();
  const DirectionPlan& row_plan = direction(Direction::kRowwise);
  const DirectionPlan& column_plan = direction(Direction::kColumnwise);
  const auto wanted_of = [&](Plan plan) {
    return Usage{usage.rowwise && row_plan.plan == plan, usage.columnwise && column_plan.plan == plan};
  };
  std::shared_ptr<QuantizedTensor> row;
  std::shared_ptr<QuantizedTensor> column;
  // A direction of the same plan that is not wanted now refers to the same object, to be had from it later.
  const auto place = [&](Plan plan, const std::shared_ptr<QuantizedTensor>& member) {
    if (row_plan.plan == plan) row = member;
    if (column_plan.plan == plan) column = member;
  };

  const Usage standard_usage = wanted_of(Plan::kStandardQuantize);
  if (standard_usage.rowwise || standard_usage.columnwise) {
    place(Plan::kStandardQuantize, standard(x, standard_usage, moment, previous));
  }
  const Usage modified = wanted_of(Plan::kModifyTensor);
  if (modified_alike(row_plan, column_plan)) {
    if (modified.rowwise || modified.columnwise) {
      place(Plan::kModifyTensor, modify(row_plan, x, modified, moment));
    }
  } else {
    if (modified.columnwise) column = modify(column_plan, x, {false, true}, moment);
    if (modified.rowwise) row = modify(row_plan, x, {true, false}, moment);
  }
  const Usage high_precision = wanted_of(Plan::kHighPrecision);
  if (high_precision.rowwise || high_precision.columnwise) {
    place(Plan::kHighPrecision, made(in_high_precision(x, layer_.compute_dtype)));
  }

  auto result = std::make_shared<DebugQuantizedTensor>(x.shape(), std::move(row), std::move(column));
  result->wanted_ = usage;
  result->standard_ = {row_plan.plan == Plan::kStandardQuantize, column_plan.plan == Plan::kStandardQuantize};
  result->standard_maker_ = parent_;
  return result;
}

std::shared_ptr<QuantizedTensor> DebugQuantizer::standard(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment,
                                                          const DebugQuantizedTensor* previous) {
  if (previous != nullptr && previous->standard_maker_.lock() == parent_) {
    const auto& row = previous->rowwise_;
    const auto& column = previous->columnwise_;
    const bool row_fits = !usage.rowwise || (previous->standard_.rowwise && row != nullptr);
    const bool column_fits = !usage.columnwise || (previous->standard_.columnwise && column != nullptr);
    if (row_fits && column_fits) {  // one object when both are the recipe's
      const std::shared_ptr<QuantizedTensor> member = usage.rowwise ? row : column;
      member->update_usage(usage);
      parent_->update(x, *member, moment);
      return member;
    }
  }
  return made(parent_->quantize(x, usage, moment));
}

std::shared_ptr<QuantizedTensor> DebugQuantizer::modify(const DirectionPlan& plan, const TensorView& x,
                                                        Usage usage, const TensorMoment& moment) {
  const ModifyContext context{.layer = layer_,
                              .tensor = tensor_,
                              .iteration = plan_.iteration,
                              .moment = moment,
                              .x = x,
                              .default_quantizer = parent_.get(),
                              .usage = usage,
                              .params = *plan.params,
                              .amax_scope = services_.amax_scope,
                              .tp_amax = services_.tp_amax};
  std::shared_ptr<QuantizedTensor> result;
  try {
    result = plan.modifier->modify_tensor(context);
    AMAXSCOPE_CHECK(result != nullptr && result->shape() == x.shape(), ErrorCode::kInternal,
                    "{} returned {} for {} of layer {}", plan.modifier->label(),
                    result == nullptr ? "nothing" : "another shape", inspected_.name, layer_.name);
    for (const Direction wanted : {Direction::kRowwise, Direction::kColumnwise}) {
      if (!usage.has(wanted)) continue;
      AMAXSCOPE_CHECK(result->usage().has(wanted), ErrorCode::kInternal,
                      "{} returned {} of layer {} without the {} direction", plan.modifier->label(),
                      inspected_.name, layer_.name, to_string(wanted));
      // The plans of all operands were checked on what the feature had promised.
      const bool promised_codes =
          plan.modifier->modifies_to_quantized(layer_, *gemm_of(tensor_, wanted), tensor_);
      AMAXSCOPE_CHECK(promised_codes != is_high_precision(result->format(wanted)), ErrorCode::kInternal,
                      "{} returned {} of layer {} as {} although it had said that it returns {}",
                      plan.modifier->label(), inspected_.name, layer_.name, to_string(result->format(wanted)),
                      promised_codes ? "codes" : "high precision");
    }
  } catch (const std::exception& error) {
    if (services_.hook_failed) services_.hook_failed(*plan.modifier, inspected_, /*altering=*/true, error);
    throw;
  }
  return made(std::move(result));
}

void DebugQuantizer::inspect(const TensorView* original, const DebugQuantizedTensor* operands,
                             const TensorMoment& moment, Hook hook, const GemmInputs* gemm) {
  if (plan_.inspecting.empty()) return;
  if (operands != nullptr && services_.inspects && moment.phase != Phase::kRecompute) {
    services_.inspects(inspected_, *operands);
  }
  const TensorView nothing;
  const InspectContext context{.tensor = inspected_,
                               .iteration = plan_.iteration,
                               .moment = moment,
                               .x = original != nullptr ? *original : nothing,
                               .has_original = original != nullptr,
                               .rowwise = operands != nullptr ? operands->get_tensor(false).get() : nullptr,
                               .columnwise = operands != nullptr ? operands->get_tensor(true).get() : nullptr,
                               .quantizer = parent_.get(),
                               .tp_amax = services_.tp_amax,
                               .modified = {direction(Direction::kRowwise).modifier != nullptr,
                                            direction(Direction::kColumnwise).modifier != nullptr},
                               .gemm = gemm,
                               .device_results = device_results_};
  if (device_results_ != nullptr) device_results_->begin_tensor();
  for (Feature* feature : plan_.inspecting) {
    try {
      require_capturable(*feature, original);
      (feature->*hook)(context);
    } catch (const std::exception& error) {
      if (!services_.hook_failed) throw;
      services_.hook_failed(*feature, inspected_, /*altering=*/false, error);
    }
  }
}

void DebugQuantizer::inspect_reuse(const TensorView* original, const QuantizedTensor& operand,
                                   const TensorMoment& moment) {
  const auto* pair = dynamic_cast<const DebugQuantizedTensor*>(&operand);
  AMAXSCOPE_CHECK(!is_result(tensor_) && pair != nullptr, ErrorCode::kUsage,
                  "layer {}: only an operand that a debug quantizer made can be inspected again, {} is not",
                  layer_.name, inspected_.name);
  require_begun();
  if (original == nullptr) return inspect(nullptr, pair, moment, &Feature::inspect_reuse);
  const TensorView x = with_threads(*original);
  inspect(&x, pair, moment, &Feature::inspect_reuse);
}

std::shared_ptr<QuantizedTensor> DebugQuantizer::wrap(std::shared_ptr<QuantizedTensor> quantized,
                                                      const TensorMoment& moment) {
  AMAXSCOPE_CHECK(!is_result(tensor_) && quantized != nullptr, ErrorCode::kUsage,
                  "layer {}: wrap takes an operand that exists in FP8", layer_.name);
  require_begun();
  AMAXSCOPE_CHECK(parent_ != nullptr, ErrorCode::kConfig,
                  "layer {}: {} exists in FP8 only, but the layer has no recipe to use it with", layer_.name,
                  inspected_.name);
  for (const Direction wanted : {Direction::kRowwise, Direction::kColumnwise}) {
    const DirectionPlan& plan = direction(wanted);
    if (plan.plan == Plan::kStandardQuantize) continue;
    const Feature& feature = plan.modifier != nullptr ? *plan.modifier : *plan.disabling.front();
    throw Error(
        ErrorCode::kConfig,
        fmt::format("layer {}: {} exists in FP8 only, so {} cannot change what {} gets (iteration {})",
                    layer_.name, inspected_.name, feature.label(), to_string(*gemm_of(tensor_, wanted)),
                    plan_.iteration));
  }
  auto result = std::make_shared<DebugQuantizedTensor>(quantized->shape(), quantized, quantized);
  inspect(nullptr, result.get(), moment);
  return result;
}

void DebugQuantizer::process_gemm_output(const MutableTensorView& result, const TensorMoment& moment,
                                         const GemmInputs* inputs) {
  AMAXSCOPE_CHECK(is_result(tensor_), ErrorCode::kUsage,
                  "layer {}: {} is an operand, not the result of a GEMM; use quantize", layer_.name,
                  inspected_.name);
  require_begun();
  const DirectionPlan& plan = direction(Direction::kRowwise);
  if (plan.plan == Plan::kModifyTensor) {
    const std::shared_ptr<QuantizedTensor> modified = modify(plan, result, {true, false}, moment);
    const Tensor values = modified->dequantize(result.dtype(), Direction::kRowwise);
    AMAXSCOPE_CHECK(result.contiguous() && result.device() == values.device(), ErrorCode::kTensor,
                    "layer {}: a modified {} cannot be written back to {} with row stride {}", layer_.name,
                    inspected_.name, to_string(result.device()), result.row_stride());
    copy_tensor(result, values.view());
  }
  if (plan_.needs_gemm_inputs && inputs != nullptr) {
    inspect_gemm(result, moment, *inputs);
  } else {
    const TensorView x = with_threads(result);
    inspect(&x, nullptr, moment);
  }
}

void DebugQuantizer::inspect_gemm(const MutableTensorView& result, const TensorMoment& moment,
                                  const GemmInputs& inputs) {
  GemmInputs whole = inputs;
  Tensor gathered_a;
  Tensor gathered_b;
  const auto operands = operands_of(*gemm_of(tensor_, Direction::kRowwise));
  try {
    // Every rank of tp decides alike: by the layer, the plan and what layers of this kind keep.
    if (whole.original_a && codes_are_gathered(layer_, operands[0])) {
      gathered_a = gather_original(*whole.original_a, operands[0]);
      whole.original_a = gathered_a.view();
    }
    if (whole.original_b && codes_are_gathered(layer_, operands[1])) {
      gathered_b = gather_original(*whole.original_b, operands[1]);
      whole.original_b = gathered_b.view();
    }
  } catch (const std::exception& error) {
    if (!services_.hook_failed) throw;
    const auto asks =
        std::ranges::find_if(plan_.inspecting, [](const Feature* f) { return f->needs_gemm_inputs(); });
    services_.hook_failed(**asks, inspected_, /*altering=*/false, error);
    return;
  }
  inspect(&result, nullptr, moment, &Feature::inspect_tensor, &whole);
}

Tensor DebugQuantizer::gather_original(const TensorView& shard, TensorKind tensor) const {
  AMAXSCOPE_CHECK(
      services_.tp_amax != nullptr, ErrorCode::kInternal,
      "layer {}: the original of {} is to be gathered over {} ranks, but there is no group for it",
      layer_.name, to_string(tensor), layer_.tp_group->size());
  const CollectiveTag tag{Traffic::kDebug, "gather original", layer_.name, to_string(tensor)};
  // First a signed frame under the deadline: a rank that has stopped observing is found out there.
  services_.tp_amax->reduce({}, tag);
  Communicator& group = services_.tp_amax->group();
  Tensor whole = Tensor::beside(shard, shard.dtype(), {shard.rows() * group.size(), shard.cols()});
  group.all_gather(shard.reshaped({shard.rows(), shard.cols()}), whole, tag);
  return whole;
}

RecipeKind DebugQuantizer::recipe() const noexcept {
  return parent_ != nullptr ? parent_->recipe() : RecipeKind::kNone;
}

DType DebugQuantizer::format() const noexcept {
  return parent_ != nullptr ? parent_->format() : layer_.compute_dtype;
}

}  // namespace amaxscope

// What a session knows of layers and tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "runtime/quantizers/plan_check.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kUpdateKind = "update";

TokenSplit token_split(TensorKind tensor) noexcept {
  switch (tensor) {
    case TensorKind::kWeight:
      return TokenSplit::kSameEverywhere;
    case TensorKind::kWgrad:
      return TokenSplit::kOwnSummand;
    default:
      return TokenSplit::kOwnTokens;
  }
}

/// Observed kinds that data-parallel ranks hold replicas of; everything else has other tokens on each of
/// them.
TokenSplit token_split(std::string_view observed_kind) noexcept {
  constexpr std::array<std::string_view, 5> kReplicated = {"parameter", "norm_weight", "reduced_gradient",
                                                           "optimizer_state", kUpdateKind};
  return std::ranges::find(kReplicated, observed_kind) != kReplicated.end() ? TokenSplit::kSameEverywhere
                                                                            : TokenSplit::kOwnTokens;
}

}  // namespace

void LayerHandle::State::plan() {
  planned_iteration = *gate.now;
  any_enabled = false;
  std::int64_t next = kNever;
  for (const std::unique_ptr<DebugQuantizer>& quantizer : parts.quantizers) {
    quantizer->begin_iteration(planned_iteration);
    any_enabled = any_enabled || quantizer->any_feature_enabled();
    next = std::min(next, quantizer->next_debug_iteration().value_or(kNever));
  }
  // With something enabled the gate stays open; the next iteration plans anew.
  gate.next = any_enabled ? planned_iteration : next;
}

DebugQuantizer* LayerHandle::quantizer(TensorKind tensor) const {
  if (!active()) return nullptr;
  if (state_->planned_iteration != *gate_->now) state_->plan();
  if (!state_->any_enabled) return nullptr;
  DebugQuantizer& quantizer = *state_->parts.quantizers[static_cast<std::size_t>(tensor)];
  return quantizer.any_feature_enabled() ? &quantizer : nullptr;
}

void LayerHandle::State::begin_capture() {
  if (parts.features.empty()) return;
  planned_iteration = *gate.now;
  any_enabled = false;
  for (const std::unique_ptr<DebugQuantizer>& quantizer : parts.quantizers) {
    quantizer->begin_capture(planned_iteration);
    any_enabled = any_enabled || quantizer->any_feature_enabled();
  }
  gate.next = any_enabled ? planned_iteration : kNever;
}

void LayerHandle::State::end_capture() {
  if (parts.features.empty()) return;
  for (const std::unique_ptr<DebugQuantizer>& quantizer : parts.quantizers) quantizer->end_capture();
  planned_iteration = -1;
  any_enabled = false;
  gate.next = *gate.now;
}

void LayerHandle::set_weight(std::function<TensorView()> values) const {
  if (state_ != nullptr) state_->weight = std::move(values);
}

std::vector<Feature*> DebugSession::Impl::admit(const LayerDescription& description, ActiveConfig& active) {
  std::vector<Feature*> features = active.match(description);
  const LayerTerms terms{options_.amax_scope,
                         [this](const std::string& message) { log.warn("{}", message); }};
  for (const Feature* feature : features) feature->admit_layer(description, terms);
  if (!features.empty()) check_plans(description, features, description.recipe != RecipeKind::kNone);
  return features;
}

LayerHandle DebugSession::Impl::layer(const LayerDescription& description, OperandQuantizers parents) {
  if (!enabled) return {};
  AMAXSCOPE_CHECK(!active_->device_results.capturing(), ErrorCode::kUsage,
                  "layer \"{}\" is registered while a step is captured; ranks talk about new layers",
                  description.name);
  AMAXSCOPE_CHECK(
      layer_names_.insert(description.name).second, ErrorCode::kUsage,
      "a layer named \"{}\" is registered already; every GEMM layer of a rank needs a name of its own",
      description.name);
  std::vector<Feature*> features = admit(description, *active_);
  if (features.empty() && !accepts_changes()) return {};

  auto owned = std::make_unique<LayerHandle::State>();
  LayerHandle::State& state = *owned;
  state.description = description;
  state.parents = std::move(parents);
  state.services.amax_scope = options_.amax_scope;
  state.services.threads = workers_;
  state.services.hook_failed = [this](const Feature& feature, const InspectedTensor& tensor, bool altering,
                                      const std::exception& error) {
    hook_failed(feature, tensor, altering, error);
  };
  state.services.inspects = [this](const InspectedTensor& tensor, const DebugQuantizedTensor& operands) {
    active_->stats.note_format(tensor, operands.format_name());
    if (active_->device_results.capturing()) captured_formats_.emplace_back(&tensor, operands.format_name());
  };
  if (description.tp_group != nullptr && description.tp_group->size() > 1) {
    AMAXSCOPE_CHECK(groups_.tp != nullptr && description.tp_group->world_ranks() == groups_.tp->world_ranks(),
                    ErrorCode::kUsage,
                    "layer {}: its tp_group is not the tensor-parallel group of the session",
                    description.name);
    state.services.tp_amax = tp_amax_.get();
  }
  state.gate = {&iteration, features.empty() ? kNever : iteration};
  if (!features.empty()) state.parts = make_parts(state, std::move(features), *active_);
  layers_.emplace(description.name, std::move(owned));

  LayerHandle handle;
  handle.gate_ = &state.gate;
  handle.state_ = &state;
  return handle;
}

LayerParts DebugSession::Impl::make_parts(const LayerHandle::State& state, std::vector<Feature*> features,
                                          ActiveConfig& active) {
  const auto parent_of = [&](TensorKind tensor) -> std::shared_ptr<Quantizer> {
    switch (tensor) {
      case TensorKind::kActivation:
        return state.parents.activation;
      case TensorKind::kWeight:
        return state.parents.weight;
      case TensorKind::kGradient:
        return state.parents.gradient;
      default:
        return nullptr;
    }
  };
  LayerParts parts{.features = std::move(features), .quantizers = {}};
  for (const TensorKind tensor : kAllTensors) {
    auto& quantizer = parts.quantizers[static_cast<std::size_t>(tensor)];
    quantizer = std::make_unique<DebugQuantizer>(state.description, tensor, parent_of(tensor), parts.features,
                                                 state.services);
    quantizer->set_device_results(&active.device_results);
    const InspectedTensor& inspected = quantizer->inspected();
    active.stats.place(inspected, place_statistic(placement_, inspected.layout, token_split(tensor)));
    for (Feature* feature : parts.features) active.register_tensor(*feature, inspected);
  }
  std::vector<std::string> names;
  for (const Feature* feature : parts.features) {
    names.push_back(fmt::format("{}/{}", feature->config().section, feature->config().name));
  }
  const LayerDescription& layer = state.description;
  active.stats.add_registration(
      groups_.stage, fmt::format("{} {}{} recipe={} features: {}", layer.name, to_string(layer.parallel),
                                 layer.sequence_parallel ? "+sequence_parallel" : "", to_string(layer.recipe),
                                 fmt::join(names, ", ")));
  active.registrations_changed = true;
  return parts;
}

bool DebugSession::Impl::takes_weight_amax(const LayerHandle::State& state) const {
  if (!state.weight || state.services.tp_amax == nullptr || iteration < state.gate.next) return false;
  const InspectedTensor& weight =
      state.parts.quantizers[static_cast<std::size_t>(TensorKind::kWeight)]->inspected();
  return std::ranges::any_of(state.parts.features, [&](const Feature* feature) {
    return feature->takes_amax_over_tp(weight, iteration, options_.amax_scope);
  });
}

void DebugSession::Impl::weights_are_final() {
  if (!enabled || tp_amax_ == nullptr) return;
  std::vector<AmaxReducer::Settled> weights;
  for (const auto& [name, state] : layers_) {  // by name: in the same order on all ranks
    if (!takes_weight_amax(*state)) continue;
    const TensorView values = state->weight();
    const TensorView shared = with_default_stream(values, cpu_stream());
    if (values.device().kind != DeviceKind::kCpu)
      continue;  // its amax stays where it is: no host waits for it
    weights.push_back({.layer = name,
                       .tensor = std::string(to_string(TensorKind::kWeight)),
                       .x = values,
                       .amax = values.numel() == 0 ? 0U : amax_bits(shared)});
  }
  if (weights.empty()) return;
  try {
    tp_amax_->reduce_ahead(weights, {.what = "amaxes of all weights"});
  } catch (const Error& error) {
    fail(error);
  }
}

void DebugSession::Impl::set_reduction_group(Communicator* group) {
  AMAXSCOPE_CHECK(layers_.empty() && free_tensors_.empty(), ErrorCode::kUsage,
                  "the reduction group must be set before layers are registered");
  placement_.override_group = group;
  placement_.overridden = true;
}

void DebugSession::Impl::observe(std::string_view name, std::string_view kind, const TensorView& view,
                                 Layout layout, const TensorMoment& moment) {
  if (!enabled || !active_->observing) return;
  inspect_free(free_tensor(name, kind, layout, moment.phase, /*base=*/false, nullptr), view, moment);
}

bool DebugSession::Impl::observes_update(std::string_view name, Layout layout) {
  if (!enabled || !active_->observing) return false;
  FreeTensor& target = free_tensor(name, kUpdateKind, layout, Phase::kForward, /*base=*/false, nullptr);
  if (iteration < target.next) return false;
  std::int64_t next = kNever;
  for (const Feature* feature : target.features) {
    const Decision decision = feature->inspect_tensor_enabled(target.tensor, iteration);
    if (decision.enabled || (active_->device_results.capturing() && decision.next)) return true;
    next = std::min(next, decision.next.value_or(kNever));
  }
  target.next = next;
  return false;
}

void DebugSession::Impl::observe_update(std::string_view name, const TensorView& weight_before,
                                        const TensorView& update, Layout layout,
                                        const TensorView* normalized_gradient) {
  if (!enabled || !active_->observing) return;
  inspect_free(free_tensor(name, kUpdateKind, layout, Phase::kForward, /*base=*/false, nullptr), update, {},
               &weight_before, normalized_gradient);
}

void DebugSession::Impl::log_tensor_stats(std::string_view layer_name, std::string_view tensor,
                                          const TensorView& view, Communicator* group) {
  if (!enabled) return;
  inspect_free(free_tensor(layer_name, tensor, Layout::kShard0, Phase::kForward, /*base=*/true, group), view,
               {});
}

DebugSession::Impl::FreeTensor& DebugSession::Impl::free_tensor(std::string_view name,
                                                                std::string_view tensor, Layout layout,
                                                                Phase phase, bool base, Communicator* group) {
  const std::pair key{std::string(name), std::string(tensor)};
  if (const auto known = free_tensors_.find(key); known != free_tensors_.end()) return *known->second;
  AMAXSCOPE_CHECK(!active_->device_results.capturing(), ErrorCode::kUsage,
                  "{} {} is observed for the first time while a step is captured; run the step once as it is "
                  "before it is captured",
                  name, tensor);
  std::unique_ptr<FreeTensor>& target = free_tensors_[key];
  target = std::make_unique<FreeTensor>();
  target->tensor.layer = name;
  target->tensor.name = tensor;
  target->tensor.layout = layout;
  if (!base) target->tensor.tp_group = groups_.tp;
  target->tensor.training_phase = phase == Phase::kBackward ? Phase::kBackward : Phase::kForward;
  target->tensor.same_over_dp = !base && token_split(tensor) == TokenSplit::kSameEverywhere;
  target->next = iteration;
  target->base = base;
  StatPlacement& placement = target->placement;
  if (base) {
    if (group != nullptr && group->size() > 1) {
      placement.group = group;
      placement.leader = group->rank() == 0;
      placement.ranks = group->world_ranks();
    } else {
      placement = place_statistic({.world = groups_.world}, layout, TokenSplit::kOwnTokens);
    }
  } else {
    placement = place_statistic(placement_, layout, token_split(tensor));
  }
  target->features = active_->match(target->tensor, base);
  if (target->features.empty()) {
    target->next = kNever;
  } else {
    register_free(*target, target->features, *active_);
  }
  return *target;
}

void DebugSession::Impl::register_free(const FreeTensor& target, const std::vector<Feature*>& features,
                                       ActiveConfig& active) {
  active.stats.place(target.tensor, target.placement);
  for (Feature* feature : features) active.register_tensor(*feature, target.tensor);
  active.registrations_changed = true;
}

void DebugSession::Impl::inspect_free(FreeTensor& target, const TensorView& view, const TensorMoment& moment,
                                      const TensorView* weight, const TensorView* normalized_gradient) {
  if (iteration < target.next) return;
  std::int64_t next = kNever;
  bool any = false;
  const bool capturing = active_->device_results.capturing();
  active_->device_results.begin_tensor();
  const TensorView x = with_default_stream(view, cpu_stream());
  const InspectContext context{.tensor = target.tensor,
                               .iteration = iteration,
                               .moment = moment,
                               .x = x,
                               .has_original = true,
                               .rowwise = nullptr,
                               .columnwise = nullptr,
                               .quantizer = nullptr,
                               .tp_amax = nullptr,
                               .weight = weight,
                               .normalized_gradient = normalized_gradient,
                               .device_results = &active_->device_results};
  for (Feature* feature : target.features) {
    const Decision decision = feature->inspect_tensor_enabled(target.tensor, iteration);
    next = std::min(next, decision.next.value_or(kNever));
    if (!decision.enabled && !(capturing && decision.next)) continue;
    any = true;
    try {
      AMAXSCOPE_CHECK(!capturing || feature->captures(), ErrorCode::kUsage,
                      "it needs the host for every tensor it looks at");
      AMAXSCOPE_CHECK(!capturing || x.device().kind != DeviceKind::kCpu, ErrorCode::kUsage,
                      "it is on the host, where a replay does nothing");
      feature->inspect_tensor(context);
    } catch (const std::exception& error) {
      hook_failed(*feature, target.tensor, /*altering=*/false, error);
      return;
    }
  }
  target.next = any ? iteration : next;
}

}  // namespace amaxscope

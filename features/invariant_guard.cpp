#include "features/invariant_guard.hpp"

#include <algorithm>
#include <array>

#include "features/inspecting.hpp"
#include "features/triggers.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kChecks = "checks";
constexpr std::string_view kSample = "sample";
constexpr std::string_view kScalars = "scalars";
constexpr std::int64_t kDefaultSample = 256;
constexpr std::array<std::string_view, 9> kAllChecks = {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9"};

std::unique_ptr<InvariantCheck> make_check(std::string_view id, std::size_t sample,
                                           const std::vector<std::string>& scalars) {
  if (id == "I1") return make_replica_check();
  if (id == "I2") return make_scale_check();
  if (id == "I3") return make_copies_check(sample);
  if (id == "I4") return make_recompute_check();
  if (id == "I5") return make_bounds_check(sample);
  if (id == "I6") return make_history_check();
  if (id == "I7") return make_master_check(sample);
  if (id == "I8") return make_scalar_check(scalars);
  return make_restart_check();
}

std::vector<std::string> allowed_checks() { return {kAllChecks.begin(), kAllChecks.end()}; }

}  // namespace

InvariantGuard::InvariantGuard(FeatureConfig config) : Feature(std::move(config)) {
  action_ = action_of(*this);
  const FeatureParams& outer = this->config().outer;
  std::vector<std::string> wanted = outer.get_strings(kChecks);
  if (wanted.empty()) wanted = allowed_checks();
  std::vector<std::string> scalars = outer.get_strings(kScalars);
  if (scalars.empty()) scalars = {"loss", "grad_norm", "learning_rate", "skipped"};
  const auto sample = static_cast<std::size_t>(outer.get_integer(kSample, kDefaultSample));
  for (const std::string_view id : kAllChecks) {
    if (std::ranges::find(wanted, id) != wanted.end()) checks_.push_back(make_check(id, sample, scalars));
  }
}

void InvariantGuard::attach(const FeatureServices& services) {
  services_ = services;
  for (const auto& check : checks_) check->attach(services.report);
}

void InvariantGuard::register_session(Registration& registration) {
  for (const auto& check : checks_) check->register_session(config().outer.schedule, registration);
}

void InvariantGuard::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  for (const auto& check : checks_) check->register_tensor(tensor, params->schedule, registration);
}

Decision InvariantGuard::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

void InvariantGuard::inspect_tensor(const InspectContext& seen) {
  const InspectContext& context = seen.on_host();
  for (const auto& check : checks_) check->inspect(context);
}

void InvariantGuard::inspect_reuse(const InspectContext& seen) {
  const InspectContext& context = seen.on_host();
  for (const auto& check : checks_) check->inspect_reuse(context);
}

void InvariantGuard::inspect_scalar(std::string_view name, double value) {
  for (const auto& check : checks_) check->inspect_scalar(name, value);
}

void InvariantGuard::end_iteration(std::int64_t iteration) {
  if (!config().outer.schedule.due(iteration) || !services_.scalar) return;
  for (const auto& check : checks_) {
    services_.scalar("checked/" + check->id(), static_cast<double>(check->take_count()));
  }
}

void InvariantGuard::save_state(FeatureState& state) const {
  for (const auto& check : checks_) check->save_state(state);
}

void InvariantGuard::load_state(const FeatureState& state) {
  for (const auto& check : checks_) check->load_state(state);
}

FeatureEntry invariant_guard_entry() {
  FeatureSchema schema;
  schema.name = "InvariantGuard";
  schema.doc =
      "Checks equalities that must hold across ranks, copies, micro-batches, recomputes and restarts, and "
      "names "
      "the layer, tensor, ranks and iteration where one does not.";
  schema.takes_tensors = true;
  schema.addition = true;
  schema.keys = {
      {.name = std::string(kChecks),
       .type = KeyType::kStringList,
       .default_text = "[I1, I2, I3, I4, I5, I6, I7, I8, I9]",
       .doc = "I1 replicas, I2 shared scales, I3 rowwise and columnwise copies, I4 recompute, I5 scale "
              "bounds, I6 amax histories, I7 weights and their codes, I8 scalars, I9 restarts.",
       .allowed = allowed_checks(),
       .addition = true},
      {.name = std::string(kSample),
       .type = KeyType::kInteger,
       .default_text = std::to_string(kDefaultSample),
       .doc = "Elements of a tensor that sampled comparisons look at (I3, I7).",
       .minimum = 1,
       .addition = true},
      {.name = std::string(kScalars),
       .type = KeyType::kStringList,
       .default_text = "[loss, grad_norm, learning_rate, skipped]",
       .doc = "Scalars that all ranks of a pipeline stage must agree on (I8).",
       .addition = true},
      action_key("What the job does about an equality that does not hold")};
  return {.schema = std::move(schema),
          .make = [](FeatureConfig config) { return std::make_unique<InvariantGuard>(std::move(config)); }};
}

}  // namespace amaxscope

#include "launch/check_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "core/error.hpp"
#include "runtime/config/number_hint.hpp"
#include "runtime/config/value.hpp"
#include "runtime/quantizers/plan_check.hpp"
#include "runtime/quantizers/tensor_plan.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::int64_t kMostRows = 2'000'000;
constexpr std::int64_t kRowsPerLayer = 9;  // three operands in two GEMMs each, three results

struct SectionFeatures {
  const ConfigSection* section = nullptr;
  std::vector<std::unique_ptr<Feature>> features;
};

std::vector<SectionFeatures> make_features(const Config& config, const FeatureRegistry& registry) {
  std::vector<SectionFeatures> sections;
  for (const ConfigSection& section : config.sections) {
    if (!section.enabled || section.layers == nullptr) continue;
    sections.push_back({&section, {}});
    for (const FeatureConfig& feature : section.features) {
      // The base namespace is fed by the trainer, tensor by tensor; it has no plan.
      if (feature.base_namespace) continue;
      sections.back().features.push_back(registry.find(feature.name, false)->make(feature));
    }
  }
  return sections;
}

/// Collects complaints, so that one run shows them all.
class Complaints {
 public:
  explicit Complaints(std::string source) : source_(std::move(source)) {}
  void add(SourcePosition position, const std::string& message) {
    lines_.push_back(fmt::format("{}:{}:{}: {}", source_, position.line, position.column, message));
  }
  void add(const Error& error) {
    if (std::ranges::find(lines_, error.what()) == lines_.end()) lines_.emplace_back(error.what());
  }
  void throw_if_any() const {
    AMAXSCOPE_CHECK(lines_.empty(), ErrorCode::kConfig, "{}", fmt::join(lines_, "\n"));
  }

 private:
  std::string source_;
  std::vector<std::string> lines_;
};

/// The layers closest to what the section's `layers` says.
std::vector<std::string> nearest_layers(const Config& config, const std::string& section,
                                        const std::vector<std::string>& layers) {
  Diagnostics ignored(config.source);
  const ConfigValue file = parse_yaml(config.text, ignored);
  const ConfigValue* mapping = file.find(section);
  const ConfigValue* selectors = mapping != nullptr ? mapping->find("layers") : nullptr;
  for (const char* key : {"exact_layer_names", "layer_name_regex_pattern", "layer_types"}) {
    const ConfigValue* selector = selectors != nullptr ? selectors->find(key) : nullptr;
    if (selector == nullptr) continue;
    if (const ConfigValue::List* list = selector->as_list(); list != nullptr && !list->empty())
      selector = &list->front();
    if (selector->as_string() != nullptr) return nearest(*selector->as_string(), layers, 3);
  }
  return nearest(section, layers, 3);
}

/// Names, in the order of the file, of the features that decide or look at a tensor in one direction.
std::vector<std::string> acting(std::span<Feature* const> features, const TensorPlan& plan,
                                Direction direction) {
  const DirectionPlan& decided = plan.directions[static_cast<std::size_t>(direction)];
  std::vector<std::string> names;
  for (Feature* feature : features) {
    const bool acts = feature == decided.modifier ||
                      std::ranges::find(decided.disabling, feature) != decided.disabling.end() ||
                      std::ranges::find(plan.inspecting, feature) != plan.inspecting.end();
    const std::string& name = feature->config().name;
    if (acts && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

void add_rows(const InspectedTensor& tensor, Direction direction, std::span<Feature* const> features,
              const PlanRequest& request, EffectivePlan& plan) {
  const std::optional<Gemm> gemm = gemm_of(tensor.kind.value(), direction);
  if (!gemm) return;
  const bool has_quantizer = request.recipe != RecipeKind::kNone && !is_result(*tensor.kind);
  std::int64_t iteration = request.first_iteration;
  while (iteration <= request.last_iteration) {
    const TensorPlan decided = plan_tensor(tensor, has_quantizer, features, iteration);
    PlanRow row{.layer = tensor.layer,
                .tensor = tensor.name,
                .gemm = std::string(to_string(*gemm)),
                .plan = std::string(to_string(decided.directions[static_cast<std::size_t>(direction)].plan)),
                .inspect = !decided.inspecting.empty(),
                .features = acting(features, decided, direction)};
    // Up to the next change every iteration has this answer.
    const std::int64_t end =
        std::min(decided.next.value_or(request.last_iteration + 1), request.last_iteration + 1);
    for (; iteration < end; ++iteration) {
      row.iteration = iteration;
      plan.rows.push_back(row);
    }
    if (iteration > request.last_iteration) plan.next_change = earlier(plan.next_change, decided.next);
  }
}

/// Whether the section is about the layer; a layer about which it cannot tell is a complaint.
bool matches(const ConfigSection& section, const LayerDescription& layer, EffectivePlan& plan,
             Complaints& complaints) {
  try {
    return section.layers->matches(layer.name, layer.number);
  } catch (const Error& error) {
    complaints.add(error);
    plan.section_layers[section.name];  // not "matches nothing"
    return false;
  }
}

/// The features of the sections that match the layer, in the order of the file; admitted and without
/// conflict.
std::vector<Feature*> features_of(const LayerDescription& layer, const std::vector<SectionFeatures>& sections,
                                  EffectivePlan& plan, Complaints& complaints) {
  std::vector<Feature*> features;
  for (const SectionFeatures& section : sections) {
    if (!matches(*section.section, layer, plan, complaints)) continue;
    plan.section_layers[section.section->name].push_back(layer.name);
    for (const auto& feature : section.features) features.push_back(feature.get());
  }
  const LayerTerms terms{.warn = [&plan](const std::string& message) { plan.warnings.push_back(message); }};
  for (const Feature* feature : features) feature->admit_layer(layer, terms);
  check_plans(layer, features, layer.recipe != RecipeKind::kNone);
  return features;
}

void add_number_hint(const Config& config, const ConfigSection& section,
                     const std::vector<std::string>& layers, EffectivePlan& plan) {
  const Pattern* pattern = section.layers->deciding_pattern();
  if (pattern == nullptr) return;
  if (const auto hint = number_hint(*pattern, layers)) {
    plan.warnings.push_back(fmt::format("{}:{}:{}: section {}: {}", config.source, section.position.line,
                                        section.position.column, section.name, *hint));
  }
}

}  // namespace

bool PlanRow::same_plan(const PlanRow& other) const {
  return layer == other.layer && tensor == other.tensor && gemm == other.gemm && plan == other.plan &&
         inspect == other.inspect && features == other.features;
}

EffectivePlan effective_plan(const Config& config, const FeatureRegistry& registry,
                             const PlanRequest& request) {
  const std::int64_t iterations = request.last_iteration - request.first_iteration + 1;
  const auto layer_count = static_cast<std::int64_t>(request.layers.size());
  AMAXSCOPE_CHECK(iterations <= kMostRows / kRowsPerLayer / layer_count, ErrorCode::kUsage,
                  "{} layers over {} iterations are more than {} rows; give fewer layers or iterations",
                  layer_count, iterations, kMostRows);
  const std::vector<SectionFeatures> sections = make_features(config, registry);

  Complaints complaints(config.source);
  EffectivePlan plan;
  for (const std::string& name : request.layers) {
    LayerDescription layer;
    layer.name = name;
    layer.recipe = request.recipe;
    try {
      const std::vector<Feature*> features = features_of(layer, sections, plan, complaints);
      for (const TensorKind tensor : kAllTensors) {
        const InspectedTensor inspected{.layer = name,
                                        .name = std::string(to_string(tensor)),
                                        .kind = tensor,
                                        .description = &layer,
                                        .layout = layout_of(layer, tensor),
                                        .training_phase = training_phase(tensor),
                                        .recipe = layer.recipe};
        add_rows(inspected, Direction::kRowwise, features, request, plan);
        add_rows(inspected, Direction::kColumnwise, features, request, plan);
      }
    } catch (const Error& error) {
      complaints.add(error);
    }
  }
  for (const SectionFeatures& section : sections) {
    if (const auto found = plan.section_layers.find(section.section->name);
        found != plan.section_layers.end()) {
      add_number_hint(config, *section.section, found->second, plan);
      continue;
    }
    complaints.add(
        section.section->position,
        fmt::format("section {} matches none of the {} given layers; nearest: {}", section.section->name,
                    request.layers.size(),
                    fmt::join(nearest_layers(config, section.section->name, request.layers), ", ")));
  }
  complaints.throw_if_any();
  return plan;
}

}  // namespace amaxscope::launch

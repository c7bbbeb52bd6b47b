#include "features/quantization_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.hpp"
#include "features/inspecting.hpp"
#include "features/quantization_codes.hpp"
#include "features/what_ifs_at_once.hpp"

namespace amaxscope {

namespace {

constexpr std::uint64_t kLargestIteration = std::uint64_t{1} << 53U;  ///< that a saved state may speak of

using Name = QuantizationStatName;

/// Why this tensor has no such statistic; empty when it has.
std::string why_skipped(const Name& name, const InspectedTensor& tensor) {
  if (tensor.kind && is_result(*tensor.kind)) return "results of a GEMM are not quantized";
  if (!name.recipe && tensor.recipe == RecipeKind::kNone) {
    return "no recipe quantizes it; with a recipe in front, as in fp8_current_scaling_sqnr, a statistic says "
           "what that one would do";
  }
  const RecipeKind recipe = name.recipe.value_or(tensor.recipe);
  if (!is_per_tensor(recipe)) {
    if (QuantizationAccumulator::is_about_age(name.stat))
      return "every block has a scale of its own, made anew each time";
    return {};
  }
  if (name.columnwise) {
    return fmt::format("under the recipe {} both directions have the same codes; leave out _columnwise",
                       to_string(recipe));
  }
  if (QuantizationAccumulator::is_about_blocks(name.stat) || name.stat == "scale_spread") {
    return fmt::format("the recipe {} has one scale for a tensor and no blocks", to_string(recipe));
  }
  return {};
}

/// The GEMM's codes, where a statistic is about them and they are of the recipe that it names.
RunningCodes own_codes(const Name& name, RecipeKind recipe, const InspectContext& context) {
  if (recipe != context.tensor.recipe) return {};
  const RunningCodes found = running_codes(name, context);
  const bool of_recipe = found.codes != nullptr && (!name.recipe || is_of(*found.codes, recipe));
  return of_recipe ? found : RunningCodes{};
}

std::string logged_name(const Name& name, std::string_view stat) {
  return fmt::format("{}{}{}", name.prefix, stat, name.columnwise ? "_columnwise" : "");
}

}  // namespace

std::vector<QuantizationStats::Request> QuantizationStats::requests_for(const FeatureParams& params,
                                                                        const InspectedTensor& tensor,
                                                                        Registration* registration) const {
  std::vector<Request> requests;
  for (const StatRequest& request : stat_requests(params)) {
    std::string reason;
    const std::optional<Name> name = parse_(request.name, reason);
    AMAXSCOPE_CHECK(name.has_value(), ErrorCode::kConfig, "{} is no statistic of {}: {}", request.name,
                    config().name, reason);
    if (const std::string why = why_skipped(*name, tensor); !why.empty()) {
      if (registration != nullptr) registration->skip(tensor, logged_name(*name, name->stat), why);
      continue;
    }
    auto same = std::ranges::find_if(requests, [&](const Request& r) {
      return r.name.recipe == name->recipe && r.name.columnwise == name->columnwise;
    });
    if (same == requests.end()) same = requests.insert(requests.end(), {*name, {}});
    same->stats.push_back(name->stat);
  }
  return requests;
}

void QuantizationStats::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  TensorState state;
  state.params = params;
  for (Request& request : requests_for(*params, tensor, &registration)) {
    Measure measure;
    measure.recipe = request.name.recipe.value_or(tensor.recipe);
    const OverflowRule rule = measure.recipe == RecipeKind::kDelayed ? OverflowRule::kAboveMaximum
                                                                     : OverflowRule::kRoundsPastMaximum;
    measure.cell = &registration.declare(tensor, params->schedule, [&] {
      return std::make_unique<QuantizationAccumulator>(
          request.name.prefix, request.name.columnwise ? "_columnwise" : "", request.stats, rule);
    });
    // The running delayed scaling has a history already; where the plan has none of its codes there is no
    // other answer.
    const bool own_history = measure.recipe == RecipeKind::kDelayed && tensor.recipe == RecipeKind::kDelayed;
    std::unique_ptr<WhatIf>* what_if = nullptr;
    if (request.name.recipe && !own_history) what_if = &state.what_ifs[measure.recipe];
    if (what_if != nullptr && *what_if == nullptr) {
      *what_if = std::make_unique<WhatIf>(measure.recipe, tensor);
      if (DelayedHistory* history = (*what_if)->history()) {
        history->declare(tensor, params->schedule, label(), registration);
        history->keep_in(kept_);
      }
    }
    state.with_rounding =
        state.with_rounding || std::ranges::any_of(request.stats, QuantizationAccumulator::is_about_rounding);
    measure.request = std::move(request);
    state.measures.push_back(std::move(measure));
  }
  if (state.measures.empty()) return;
  for (Measure& measure : tensors_.insert_or_assign(&tensor, std::move(state)).first->second.measures) {
    const Name& name = measure.request.name;
    kept_.keep(
        fmt::format("{} {} {}{}", tensor.layer, tensor.name,
                    name.recipe ? to_string(*name.recipe) : "running", name.columnwise ? " columnwise" : ""),
        [&measure] { return measure.saved(); },
        [&measure](const KeptState::Words& words) { measure.restore(words); });
  }
}

std::int64_t QuantizationStats::Measure::age_of(const Scales& scales, std::int64_t iteration) {
  if (scales.first != scale) scale_since = iteration;
  const std::int64_t age = iteration - scale_since;
  if (scales.changed) scale_since = iteration;
  scale = scales.last;
  return age;
}

KeptState::Words QuantizationStats::Measure::saved() const {
  KeptState::Words words = {std::bit_cast<std::uint32_t>(scale), static_cast<std::uint64_t>(scale_since),
                            static_cast<std::uint64_t>(rounding_iteration)};
  for (const float error : rounding) words.push_back(std::bit_cast<std::uint32_t>(error));
  return words;
}

void QuantizationStats::Measure::restore(const KeptState::Words& words) {
  constexpr std::size_t kBeforeRounding = 3;
  AMAXSCOPE_CHECK(words.size() >= kBeforeRounding && words.size() <= kBeforeRounding + kRoundingSamples,
                  ErrorCode::kInput, "saved statistics of quantization have {} words, expected {} to {}",
                  words.size(), kBeforeRounding, kBeforeRounding + kRoundingSamples);
  // -1: not yet. Later iterations are counted from these.
  for (const std::uint64_t word : {words[1], words[2]}) {
    AMAXSCOPE_CHECK(word <= kLargestIteration || word == std::bit_cast<std::uint64_t>(std::int64_t{-1}),
                    ErrorCode::kInput, "saved statistics of quantization have {} where an iteration stands",
                    word);
  }
  scale = std::bit_cast<float>(static_cast<std::uint32_t>(words[0]));
  scale_since = static_cast<std::int64_t>(words[1]);
  rounding_iteration = static_cast<std::int64_t>(words[2]);
  rounding.clear();
  for (std::size_t i = kBeforeRounding; i < words.size(); ++i) {
    rounding.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(words[i])));
  }
}

Decision QuantizationStats::inspect_tensor_enabled(const InspectedTensor& tensor,
                                                   std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return Decision::never();
  if (const auto known = tensors_.find(&tensor); known != tensors_.end()) {
    const bool has_history = std::ranges::any_of(
        known->second.what_ifs, [](const auto& entry) { return entry.second->history() != nullptr; });
    return has_history ? DelayedHistory::looks(params->schedule, iteration)
                       : Decision::of(params->schedule, iteration);
  }
  const std::vector<Request> requests = requests_for(*params, tensor, nullptr);
  if (requests.empty()) return Decision::never();
  const bool has_history =
      tensor.recipe != RecipeKind::kDelayed && std::ranges::any_of(requests, [](const Request& request) {
        return request.name.recipe == RecipeKind::kDelayed;
      });
  return has_history ? DelayedHistory::looks(params->schedule, iteration)
                     : Decision::of(params->schedule, iteration);
}

bool QuantizationStats::takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                           AmaxScope /*session_default*/) const {
  const auto known = tensors_.find(&weight);
  if (known == tensors_.end() || !known->second.params->schedule.due(iteration)) return false;
  return std::ranges::any_of(known->second.what_ifs, [&](const auto& entry) {
    return entry.first != weight.recipe && has_tensor_amax(entry.first);
  });
}

const Measured* QuantizationStats::measured_for(const Measure& measure, Now& now) const {
  const InspectContext& context = now.context;
  const Name& name = measure.request.name;
  if (const RunningCodes found = own_codes(name, measure.recipe, context); found.codes != nullptr) {
    std::optional<Measured>& result = now.codes[static_cast<std::size_t>(found.direction)];
    if (!result) {
      result =
          measure_codes(context.x, *found.codes, found.direction, context.quantizer, now.state.with_rounding);
    }
    return &*result;
  }
  if (!name.recipe || !now.state.what_ifs.contains(measure.recipe)) return nullptr;
  if (!now.what_ifs.contains(measure.recipe)) measure_what_if(measure.recipe, now);
  return &*now.what_ifs[measure.recipe][static_cast<std::size_t>(direction_of(name))];
}

/// Of this recipe everything that is asked for, in one go; on the host also of the others, since they read
/// the same tensor. Sampled rounding errors need the codes of all of it.
void QuantizationStats::measure_what_if(RecipeKind recipe, Now& now) const {
  const InspectContext& context = now.context;
  const auto wanted_of = [&](RecipeKind of) {
    Usage wanted{false, false};
    for (const Measure& other : now.state.measures) {
      if (other.recipe == of) (other.request.name.columnwise ? wanted.columnwise : wanted.rowwise) = true;
    }
    return wanted;
  };
  const WhatIf& first = *now.state.what_ifs.at(recipe);
  if (now.state.with_rounding || context.x.numel() == 0 || context.x.device().kind != DeviceKind::kCpu ||
      !first.goes_by_rows()) {
    now.what_ifs[recipe] =
        now.state.what_ifs.at(recipe)->measure(context, wanted_of(recipe), now.state.with_rounding);
    return;
  }
  std::vector<WhatIfRequest> requests;
  std::vector<RecipeKind> recipes;
  for (const auto& [other, what_if] : now.state.what_ifs) {
    const bool asked = std::ranges::any_of(now.state.measures, [&](const Measure& measure) {
      const Name& name = measure.request.name;
      return measure.recipe == other && name.recipe && own_codes(name, other, context).codes == nullptr;
    });
    if (!asked || !what_if->goes_by_rows() || now.what_ifs.contains(other)) continue;
    requests.push_back({what_if.get(), wanted_of(other)});
    recipes.push_back(other);
  }
  std::vector<WhatIf::Result> results = measure_at_once(context, requests);
  for (std::size_t i = 0; i < recipes.size(); ++i) now.what_ifs[recipes[i]] = std::move(results[i]);
}

QuantizationSample QuantizationStats::sample_of(Measure& measure, const Measured& measured,
                                                const InspectContext& context) const {
  QuantizationSample sample{
      .measured = measured.error, .flags = measured.flags, .microbatch = context.moment.microbatch};
  if (measure.request.name.recipe) sample.format = measured.format;
  const bool training = context.moment.phase != Phase::kEval;
  if (!training || context.x.numel() == 0) return sample;
  if (measured.scale != 0.0F) {
    sample.scale_age = measure.age_of({measured.scale, measured.scale, false}, context.iteration);
  }
  if (measured.rounding.errors.empty()) return sample;
  const bool first = context.moment.microbatch == 0 && measure.rounding_iteration != context.iteration;
  sample.rounding =
      rounding_sums(measured.rounding.errors, measured.rounding.outward,
                    first ? std::span<const float>(measure.rounding) : std::span<const float>());
  if (first) {
    measure.rounding = measured.rounding.outward;
    measure.rounding_iteration = context.iteration;
  }
  return sample;
}

void QuantizationStats::feed_scales(const Measure& measure, const InspectContext& context) {
  auto& accumulator = static_cast<QuantizationAccumulator&>(measure.cell->of(context.moment.phase));
  if (accumulator.ran() || context.moment.phase == Phase::kRecompute) return;
  const Name& name = measure.request.name;
  const RunningCodes found =
      measure.recipe == context.tensor.recipe ? running_codes(name, context) : RunningCodes{};
  for (const std::string& stat : measure.request.stats) {
    if (found.codes != nullptr && QuantizationAccumulator::is_about_scale(stat)) continue;
    const std::string logged = logged_name(name, stat);
    if (!said_.insert({context.tensor.layer, logged}).second || !warn_) continue;
    warn_(
        fmt::format("{}: {} of {} is skipped: it exists in codes only, there is nothing to compare them with",
                    context.tensor.layer, logged, context.tensor.name));
  }
  if (found.codes == nullptr) return;
  accumulator.feed(
      QuantizationSample{.measured = scales_of(*found.codes, found.direction), .scale_only = true});
}

void QuantizationStats::inspect_tensor(const InspectContext& context) {
  const auto state = tensors_.find(&context.tensor);
  if (state == tensors_.end()) return;
  for (const auto& [recipe, what_if] : state->second.what_ifs) {
    if (what_if->history() == nullptr) continue;
    AMAXSCOPE_CHECK(!context.captured(), ErrorCode::kUsage,
                    "what delayed scaling would do follows a history that the host keeps");
    what_if->history()->observe(context);
  }
  // A captured step is for all iterations.
  if (!context.captured() && !state->second.params->schedule.due(context.iteration)) return;
  const Now now{context, state->second};
  std::optional<Now> here;  // what only the host measures
  for (Measure& measure : state->second.measures) {
    if (!context.has_original) {
      AMAXSCOPE_CHECK(!context.captured(), ErrorCode::kUsage,
                      "it exists in codes only, and the host reads their scale");
      feed_scales(measure, context.on_host());
      continue;
    }
    auto& accumulator = static_cast<QuantizationAccumulator&>(measure.cell->of(context.moment.phase));
    if (!counts(context, accumulator) || defer(measure, accumulator, now)) continue;
    if (!here) here.emplace(context.on_host(), state->second);
    if (const Measured* measured = measured_for(measure, *here))
      accumulator.feed(sample_of(measure, *measured, here->context));
  }
}

std::vector<StatSchema> quantization_statistics() {
  const auto addition = [](std::string name, std::string doc) {
    return StatSchema{.name = std::move(name), .doc = std::move(doc), .parameters = {}, .addition = true};
  };
  return {
      {.name = "underflows%", .doc = "Percentage of elements that are not zero but quantized to zero."},
      {.name = "mse", .doc = "Mean squared difference between the tensor and what its codes stand for."},
      addition("sqnr", "Signal to quantization noise ratio in dB."),
      addition("cosine", "Cosine of the angle between the tensor and what its codes stand for."),
      addition("max_error", "Largest difference of an element."),
      addition("saturated%", "Percentage of elements that would round past the largest code."),
      addition("flushed%", "The same as underflows%, to stand beside saturated%."),
      addition("saturated_energy%", "Part of the tensor's sum of squares that is in saturated elements."),
      addition("flushed_energy%",
               "Part of the tensor's sum of squares that is in elements quantized to zero."),
      addition("scale_spread", "log2 of the largest over the smallest scale of the blocks."),
      addition("zero_blocks", "Number of blocks with nothing but zeros; left out of the scales' statistics."),
      addition("saturated_blocks%", "Percentage of blocks with a saturated element."),
      addition("flushed_blocks%", "Percentage of blocks with an element quantized to zero."),
      addition(
          "worst_blocks",
          "The four blocks with the largest error: worst_block_1_error% (of the tensor's squared error), "
          "_row, _col (of its first element), _rank, _microbatch."),
      addition("scale_age",
               "Iterations since the scale of the tensor last changed, as seen at due iterations."),
      addition("rounding_mean", "Mean error of 4096 sampled elements, in steps of their grid."),
      addition("rounding_z", "rounding_mean in standard deviations: beyond 4 it is no accident."),
      addition("rounding_correlation",
               "Correlation of the sampled errors with those of the previous due iteration: 0 unless "
               "stochastic rounding repeats its random numbers or the tensor does not change.")};
}

}  // namespace amaxscope

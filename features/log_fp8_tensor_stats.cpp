#include "features/log_fp8_tensor_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "features/inspecting.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/stats/quantization_accumulator.hpp"

namespace amaxscope {

namespace {

bool is_per_tensor(RecipeKind recipe) {
  return recipe == RecipeKind::kDelayed || recipe == RecipeKind::kCurrent;
}

/// Why this tensor has no such statistic; empty when it has.
std::string why_skipped(const Fp8StatName& name, const InspectedTensor& tensor) {
  if (tensor.kind && is_result(*tensor.kind)) return "results of a GEMM are not quantized";
  if (!name.recipe) {
    if (tensor.recipe == RecipeKind::kNone) {
      return fmt::format("no recipe quantizes it; \"fp8_current_scaling_{}\" says what one would do",
                         name.stat);
    }
    if (!is_per_tensor(tensor.recipe)) {
      return fmt::format("FP8 statistics of the recipe {} are not built yet", to_string(tensor.recipe));
    }
    if (name.columnwise) {
      return fmt::format("under the recipe {} both directions have the same codes; ask for \"{}\"",
                         to_string(tensor.recipe), name.stat);
    }
    return {};
  }
  const bool built =
      *name.recipe == RecipeKind::kCurrent || (*name.recipe == tensor.recipe && is_per_tensor(tensor.recipe));
  return built ? std::string()
               : fmt::format("{} as a what-if (the recipe is {}) is not built yet", to_string(*name.recipe),
                             to_string(tensor.recipe));
}

/// Statistics that share recipe and direction, and so an accumulator.
struct Request {
  Fp8StatName name;
  std::vector<std::string> stats;
};

std::vector<Request> requests_for(const FeatureParams& params, const InspectedTensor& tensor,
                                  Registration* registration) {
  std::vector<Request> requests;
  for (const StatRequest& request : stat_requests(params)) {
    std::string reason;
    const std::optional<Fp8StatName> name = parse_fp8_stat(request.name, reason);
    AMAXSCOPE_CHECK(name.has_value(), ErrorCode::kConfig, "{} is no FP8 statistic: {}", request.name, reason);
    if (const std::string why = why_skipped(*name, tensor); !why.empty()) {
      if (registration != nullptr) registration->skip(tensor, request.name, why);
      continue;
    }
    auto same =
        std::ranges::find_if(requests, [&](const Request& r) { return r.name.recipe == name->recipe; });
    if (same == requests.end()) same = requests.insert(requests.end(), {*name, {}});
    same->stats.push_back(name->stat);
  }
  return requests;
}

std::string_view flag_of(ScaleClamp clamp) {
  switch (clamp) {
    case ScaleClamp::kZeroAmax:
      return "zero_amax";
    case ScaleClamp::kInfAmax:
      return "inf_amax";
    case ScaleClamp::kScaleClamped:
      return "scale_clamped";
    case ScaleClamp::kNone:
      break;
  }
  return {};
}

using Flags = std::vector<std::string>;

Flags flags_of(ScaleClamp clamp) {
  const std::string_view flag = flag_of(clamp);
  return flag.empty() ? Flags{} : Flags{std::string(flag)};
}

/// What the quantizer says of its scale, if these codes are under it: a feature may have made others, and a
/// cached weight may be older than the scale.
Flags flags_of(const Quantizer* quantizer, const Float8Tensor& codes) {
  if (const auto* delayed = dynamic_cast<const Float8Quantizer*>(quantizer)) {
    const DelayedScalingState::Slot& slot = delayed->slot();
    if (slot.scale != codes.scale()) return {};
    Flags flags = flags_of(slot.clamp);
    if (!slot.has_history) flags.emplace_back("no_history");
    return flags;
  }
  if (const auto* current = dynamic_cast<const Float8CurrentScalingQuantizer*>(quantizer)) {
    return flags_of(current->last_clamp());
  }
  return {};
}

struct Measured {
  QuantizationError error;
  float scale_inv = 1.0F;
  Flags flags;
};

const Float8Tensor* codes_of(const InspectContext& context) {
  if (const auto* rowwise = dynamic_cast<const Float8Tensor*>(context.rowwise)) return rowwise;
  return dynamic_cast<const Float8Tensor*>(context.columnwise);
}

Measured measure_codes(const InspectContext& context, const Float8Tensor& codes) {
  Measured measured{.error = {}, .scale_inv = codes.scale_inv(), .flags = flags_of(context.quantizer, codes)};
  if (context.x.numel() == 0) return measured;
  Tensor turned;
  TensorView logical;
  if (codes.usage().rowwise) {
    logical = codes.codes(Direction::kRowwise).view();
  } else {
    turned = Tensor(codes.format(Direction::kColumnwise), Shape{context.x.rows(), context.x.cols()});
    transpose(codes.codes(Direction::kColumnwise), turned);
    logical = turned.view();
  }
  measured.error =
      quantization_error(context.x, logical.reshaped(context.x.shape()), codes.scale(), codes.scale_inv());
  return measured;
}

Measured measure_what_if(const InspectContext& context) {
  const InspectedTensor& tensor = context.tensor;
  std::array<std::uint32_t, 1> amax = {context.x.numel() == 0 ? 0U : amax_bits(context.x)};
  const bool sharded = tensor.layout == Layout::kShard0 || tensor.layout == Layout::kShard1;
  if (sharded && context.tp_amax != nullptr) {
    context.tp_amax->reduce(amax, {.what = "what-if amax", .layer = tensor.layer, .tensor = tensor.name});
  }
  const DType format = tensor.kind ? operand_format(RecipeKind::kCurrent, *tensor.kind) : DType::kE4M3;
  const ScaleFromAmax scale = scale_from_amax(amax[0], {.max_value = fp8_max(format)});
  Measured measured{.error = {}, .scale_inv = scale_inverse(scale.scale), .flags = flags_of(scale.clamp)};
  if (context.x.numel() > 0) measured.error = quantization_error_of_cast(context.x, format, scale.scale);
  return measured;
}

}  // namespace

void LogFp8TensorStats::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return;
  std::vector<Measure> measures;
  for (const Request& request : requests_for(*params, tensor, &registration)) {
    const RecipeKind recipe = request.name.recipe.value_or(tensor.recipe);
    const OverflowRule rule =
        recipe == RecipeKind::kDelayed ? OverflowRule::kAboveMaximum : OverflowRule::kRoundsPastMaximum;
    StatCell& cell = registration.declare(tensor, params->schedule, [&] {
      return std::make_unique<QuantizationAccumulator>(request.name.prefix, "", request.stats, rule);
    });
    measures.push_back({.cell = &cell,
                        .of_codes = recipe == tensor.recipe,
                        .what_if = request.name.recipe == RecipeKind::kCurrent});
  }
  if (!measures.empty()) measures_.insert_or_assign(&tensor, std::move(measures));
}

Decision LogFp8TensorStats::inspect_tensor_enabled(const InspectedTensor& tensor,
                                                   std::int64_t iteration) const {
  const FeatureParams* params = params_of_inspected(config(), tensor);
  if (params == nullptr) return Decision::never();
  if (!measures_.contains(&tensor) && requests_for(*params, tensor, nullptr).empty())
    return Decision::never();
  return Decision::of(params->schedule, iteration);
}

void LogFp8TensorStats::inspect_tensor(const InspectContext& context) {
  const auto found = measures_.find(&context.tensor);
  if (found == measures_.end()) return;
  const Float8Tensor* codes = codes_of(context);
  std::optional<Measured> of_codes;  // shared by the statistics with and without the recipe in front
  for (const Measure& measure : found->second) {
    auto& accumulator = static_cast<QuantizationAccumulator&>(measure.cell->of(context.moment.phase));
    if (!counts(context, accumulator)) continue;
    std::optional<Measured> what_if;
    const std::optional<Measured>* result = &of_codes;
    if (measure.of_codes && codes != nullptr) {
      if (!of_codes) of_codes = measure_codes(context, *codes);
    } else if (measure.what_if) {
      what_if = measure_what_if(context);
      result = &what_if;
    } else {
      continue;
    }
    accumulator.feed((*result)->error, (*result)->scale_inv, (*result)->flags);
  }
}

}  // namespace amaxscope

#include "megatron/layers/operand_quantizers.hpp"

#include <array>

#include "core/error.hpp"
#include "megatron/block_faults.hpp"
#include "megatron/counter_hash.hpp"
#include "megatron/planted_faults.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope::megatron {

namespace {

constexpr std::array kOperands = {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient};

std::shared_ptr<Quantizer>& slot_of(OperandQuantizers& operands, TensorKind tensor) {
  if (tensor == TensorKind::kActivation) return operands.activation;
  return tensor == TensorKind::kWeight ? operands.weight : operands.gradient;
}

bool has_scale_per_tensor(RecipeKind recipe) {
  return recipe == RecipeKind::kDelayed || recipe == RecipeKind::kCurrent;
}

bool reduces_amax(RecipeKind recipe) {
  return recipe == RecipeKind::kDelayed || recipe == RecipeKind::kCurrent || recipe == RecipeKind::kNvfp4;
}

/// Ranks that hold parts of a tensor draw differently, ranks that hold all of it alike.
std::uint64_t rounding_seed(const LayerContext& context, const LayerDescription& layer, TensorKind tensor) {
  const bool split = layout_of(layer, tensor) != Layout::kReplicated;
  const std::uint64_t seed = context.perturb == 0 ? context.seed : hash_words(context.seed, context.perturb);
  return hash_words(seed, split ? context.tp_rank() + 1 : 0);
}

/// The group over which ranks share a scale: where codes are gathered. Null: each rank has its own.
Communicator* amax_group(const LayerContext& context, const LayerDescription& layer, TensorKind tensor,
                         LayerQuantizers& owner) {
  Communicator* group = codes_are_gathered(layer, tensor) ? context.tp : nullptr;
  if (context.faults != nullptr &&
      context.faults->planted(FaultKind::kSkipAmaxReduction, layer.name, tensor)) {
    AMAXSCOPE_CHECK(
        group != nullptr, ErrorCode::kUsage,
        "fault skip_amax_reduction: the amax of {} of {} is not reduced under recipe {}; it is where codes "
        "are gathered: activation of a column-parallel and gradient of a row-parallel layer with "
        "sequence parallelism",
        to_string(tensor), layer.name, to_string(layer.recipe));
    owner.groups.push_back(std::make_unique<AmaxGroupWithGaps>(
        *group, *context.faults, [faults = context.faults, name = layer.name, tensor](std::size_t) {
          return faults->due(FaultKind::kSkipAmaxReduction, name, tensor);
        }));
    group = owner.groups.back().get();
  }
  return group;
}

std::shared_ptr<Quantizer> make_operand_quantizer(const LayerContext& context, const LayerDescription& layer,
                                                  TensorKind tensor, LayerQuantizers& owner) {
  QuantizerRequest request{.recipe = layer.recipe,
                           .tensor = tensor,
                           .name = slot_name(layer.name, tensor),
                           .delayed = context.delayed};
  request.options.nvfp4.seed = rounding_seed(context, layer, tensor);
  if (layer.recipe == RecipeKind::kCurrent || layer.recipe == RecipeKind::kNvfp4) {
    request.reduce_amaxes = reduce_amaxes_over(amax_group(context, layer, tensor, owner), request.name);
  }
  if (context.faults != nullptr && layer.recipe == RecipeKind::kMxfp8 &&
      context.faults->planted(FaultKind::kE5m2Gradients, layer.name, tensor)) {
    request.format = DType::kE5M2;
  }
  std::shared_ptr<Quantizer> quantizer = make_quantizer(request);
  if (context.streams == nullptr) return quantizer;
  if (auto* const drawing = dynamic_cast<Nvfp4Quantizer*>(quantizer.get()))
    context.streams->emplace(request.name, drawing);
  return quantizer;
}

/// The quantizer, within what misbehaves where a fault is planted.
std::shared_ptr<Quantizer> with_faults(const LayerContext& context, const LayerDescription& layer,
                                       TensorKind tensor, std::shared_ptr<Quantizer> quantizer) {
  if (context.faults == nullptr) return quantizer;
  const FaultTable& faults = *context.faults;
  const auto planted = [&](FaultKind kind) { return faults.planted(kind, layer.name, tensor); };
  if (planted(FaultKind::kScaleOff)) {
    quantizer = std::make_shared<ScaleOffQuantizer>(std::move(quantizer), faults, layer.name, tensor);
  }
  if (planted(FaultKind::kScaleRoundedDown)) {
    quantizer = std::make_shared<RoundedDownQuantizer>(std::move(quantizer), faults, layer.name, tensor);
  }
  if (const auto drawing = std::dynamic_pointer_cast<Nvfp4Quantizer>(quantizer);
      drawing != nullptr && planted(FaultKind::kFixedRoundingSeed)) {
    quantizer = std::make_shared<FixedSeedQuantizer>(drawing, faults, layer.name, tensor);
  }
  if (tensor == TensorKind::kActivation && planted(FaultKind::kRecomputeInBf16)) {
    quantizer = std::make_shared<Bf16RecomputeQuantizer>(std::move(quantizer), faults, layer.name, tensor);
  }
  return quantizer;
}

void require_no_recipe_fault(const LayerContext& context, const LayerDescription& layer) {
  if (context.faults == nullptr) return;
  for (const Fault& fault : context.faults->faults()) {
    // A fault of every layer strikes those that have a recipe.
    AMAXSCOPE_CHECK(
        fault.layer != layer.name || fault.kind == FaultKind::kNan || fault.kind == FaultKind::kGrowChannel,
        ErrorCode::kUsage, "fault {}: {} of {} is not quantized by a recipe", to_string(fault.kind),
        to_string(fault.tensor.value_or(TensorKind::kActivation)), layer.name);
  }
}

void require_faults_can_strike(const LayerContext& context, const LayerDescription& layer,
                               TensorKind tensor) {
  if (context.faults == nullptr) return;
  AMAXSCOPE_CHECK(
      !context.faults->planted(FaultKind::kScaleOff, layer.name, tensor) ||
          has_scale_per_tensor(layer.recipe),
      ErrorCode::kUsage,
      "fault {}: {} of {} has no scale per tensor under recipe {}; it has under delayed and current",
      to_string(FaultKind::kScaleOff), to_string(tensor), layer.name, to_string(layer.recipe));
  AMAXSCOPE_CHECK(
      !context.faults->planted(FaultKind::kSkipAmaxReduction, layer.name, tensor) ||
          reduces_amax(layer.recipe),
      ErrorCode::kUsage, "fault {}: recipe {} reduces no amax of {} of {}; delayed, current and nvfp4 do",
      to_string(FaultKind::kSkipAmaxReduction), to_string(layer.recipe), to_string(tensor), layer.name);
}

}  // namespace

LayerQuantizers make_operand_quantizers(const LayerContext& context, const LayerDescription& layer) {
  LayerQuantizers result;
  if (layer.recipe == RecipeKind::kNone) {
    require_no_recipe_fault(context, layer);
    return result;
  }
  for (const TensorKind tensor : kOperands) {
    require_faults_can_strike(context, layer, tensor);
    std::shared_ptr<Quantizer> quantizer = make_operand_quantizer(context, layer, tensor, result);
    slot_of(result.operands, tensor) = with_faults(context, layer, tensor, std::move(quantizer));
  }
  return result;
}

std::string slot_name(std::string_view layer, TensorKind tensor) {
  return fmt::format("{}.{}", layer, to_string(tensor));
}

const Fault* skipped_reduction(const FaultTable& faults, std::string_view slot) noexcept {
  const std::size_t dot = slot.rfind('.');
  if (dot == std::string_view::npos) return nullptr;
  const std::optional<TensorKind> tensor = parse_tensor(slot.substr(dot + 1));
  return tensor ? faults.due(FaultKind::kSkipAmaxReduction, slot.substr(0, dot), *tensor) : nullptr;
}

}  // namespace amaxscope::megatron

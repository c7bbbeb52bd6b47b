#include "runtime/layer.hpp"

#include "core/error.hpp"

namespace amaxscope {

namespace {

bool is_tensor_parallel(const LayerDescription& layer) noexcept {
  return layer.parallel != ParallelMode::kNone && layer.tp_group != nullptr && layer.tp_group->size() > 1;
}

}  // namespace

std::string_view to_string(ParallelMode mode) noexcept {
  switch (mode) {
    case ParallelMode::kNone:
      return "none";
    case ParallelMode::kColumn:
      return "column";
    case ParallelMode::kRow:
      return "row";
  }
  return "unknown";
}

// Y [M, N] = X [M, K] * W [N, K]^T: a column-parallel layer splits N, a row-parallel one K, and sequence
// parallelism splits M outside the layer (Megatron-LM core/tensor_parallel/layers.py).
Layout layout_of(const LayerDescription& layer, TensorKind tensor) noexcept {
  if (!is_tensor_parallel(layer)) return Layout::kReplicated;
  const bool column = layer.parallel == ParallelMode::kColumn;
  const bool split_tokens = layer.sequence_parallel && !layer.gathers_before_quantizing;
  const Layout tokens = split_tokens ? Layout::kShard0 : Layout::kReplicated;
  switch (tensor) {
    case TensorKind::kActivation:
      return column ? tokens : Layout::kShard1;
    case TensorKind::kGradient:
      return column ? Layout::kShard1 : tokens;
    case TensorKind::kWeight:
    case TensorKind::kWgrad:
      return column ? Layout::kShard0 : Layout::kShard1;
    case TensorKind::kOutput:
      return column ? Layout::kShard1 : Layout::kPartial;
    case TensorKind::kDgrad:
      return column ? Layout::kPartial : Layout::kShard1;
  }
  return Layout::kReplicated;
}

bool codes_are_gathered(const LayerDescription& layer, TensorKind tensor) noexcept {
  if (!is_tensor_parallel(layer) || !layer.sequence_parallel || layer.gathers_before_quantizing) return false;
  return tensor ==
         (layer.parallel == ParallelMode::kColumn ? TensorKind::kActivation : TensorKind::kGradient);
}

std::string_view to_string(AmaxScope scope) noexcept {
  switch (scope) {
    case AmaxScope::kTensor:
      return "tensor";
    case AmaxScope::kTe:
      return "te";
    case AmaxScope::kLocal:
      return "local";
  }
  return "unknown";
}

std::optional<AmaxScope> parse_amax_scope(std::string_view text) noexcept {
  for (const AmaxScope scope : {AmaxScope::kTensor, AmaxScope::kTe, AmaxScope::kLocal}) {
    if (to_string(scope) == text) return scope;
  }
  return std::nullopt;
}

bool reduces_amax(AmaxScope scope, const LayerDescription& layer, TensorKind tensor) {
  if (scope == AmaxScope::kLocal) return false;
  if (scope == AmaxScope::kTe) return codes_are_gathered(layer, tensor);
  const Layout layout = layout_of(layer, tensor);
  AMAXSCOPE_CHECK(
      layout != Layout::kPartial, ErrorCode::kUsage,
      "layer {}: {} is a partial sum on each of {} ranks; no maximum of summands is the amax of the sum, "
      "so it has no scale of the whole tensor",
      layer.name, to_string(tensor), layer.tp_group->size());
  return layout != Layout::kReplicated;
}

}  // namespace amaxscope

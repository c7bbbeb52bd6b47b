// The recipe's quantizers of a GEMM layer's three operands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/context.hpp"
#include "megatron/faults.hpp"
#include "runtime/layer.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron {

struct LayerQuantizers {
  OperandQuantizers operands;  ///< all null without a recipe
  /// Groups made for planted faults, which the quantizers borrow.
  std::vector<std::unique_ptr<Communicator>> groups;
};

/// Delayed: a new slot of context.delayed for activation, weight and gradient, in this order, so that all
/// ranks register alike. Current and NVFP4: the amax is reduced over tp where codes are gathered, else it is
/// this rank's own. Throws Error(kUsage) for a planted fault that cannot strike here.
LayerQuantizers make_operand_quantizers(const LayerContext& context, const LayerDescription& layer);

/// "decoder.layers.1.mlp.linear_fc1.weight": the name of a delayed-scaling slot.
std::string slot_name(std::string_view layer, TensorKind tensor);
/// The fault that has the amax reduction of this slot left out now, or null; the inverse of slot_name.
const Fault* skipped_reduction(const FaultTable& faults, std::string_view slot) noexcept;

}  // namespace amaxscope::megatron

// Sequence parallelism: a GEMM operand whose rows are split over tp is quantized first and gathered as codes,
// or gathered first where blocks of the format would be cut.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/communicator.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope::megatron {

/// Whether slices of this many rows can be quantized each for itself and the codes gathered, in both
/// directions: any under per-tensor scaling and without a recipe, multiples of 32 under MXFP8, of 128 under
/// block scaling, of 16 under NVFP4.
bool slices_are_whole_blocks(RecipeKind recipe, std::int64_t rows) noexcept;

/// The rows of all ranks in rank order. Collective over tp.
Tensor gather_rows(const TensorView& shard, Communicator& tp, std::string_view layer,
                   std::string_view tensor);

/// The operand of all ranks' rows, in rank order, in the wanted directions. Codes travel as bytes and are
/// decoded with this rank's scale (the recipe or feature made it common to the group); the columnwise copy is
/// the transpose of the gathered rowwise codes. Block-scaled codes travel with their scales, each wanted
/// direction for itself; the rows of a rank must be whole blocks. High-precision members travel as they are.
/// The two members of a DebugQuantizedTensor are gathered each, columnwise first, or once when they are the
/// same. Collective over tp. Throws Error(kUsage) for a kind of tensor whose codes cannot be gathered.
std::shared_ptr<QuantizedTensor> gather_operand(const std::shared_ptr<QuantizedTensor>& shard, Usage wanted,
                                                Communicator& tp, std::string_view layer,
                                                std::string_view tensor);

}  // namespace amaxscope::megatron

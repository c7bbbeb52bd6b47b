// Sequence parallelism: a GEMM operand whose rows are split over tp is quantized first and gathered as codes.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/communicator.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"

namespace amaxscope::megatron {

/// The operand of all ranks' rows, in rank order, in the wanted directions. Codes travel as bytes and are
/// decoded with this rank's scale (the recipe or feature made it common to the group); the columnwise copy is
/// the transpose of the gathered rowwise codes. High-precision members travel as they are. The two members of
/// a DebugQuantizedTensor are gathered each, columnwise first, or once when they are the same. Collective
/// over tp. Throws Error(kUsage) for a kind of tensor whose codes cannot be gathered.
std::shared_ptr<QuantizedTensor> gather_operand(const std::shared_ptr<QuantizedTensor>& shard, Usage wanted,
                                                Communicator& tp, std::string_view layer,
                                                std::string_view tensor);

}  // namespace amaxscope::megatron

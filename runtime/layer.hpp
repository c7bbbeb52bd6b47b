// What the runtime knows of a GEMM layer. Value types; groups are borrowed and must outlive the session.
#pragma once

#include <optional>
#include <string>

#include "collectives/communicator.hpp"
#include "core/dtype.hpp"
#include "runtime/names.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {

enum class ParallelMode { kNone, kColumn, kRow };

std::string_view to_string(ParallelMode mode) noexcept;

struct LayerDescription {
  std::string name;
  std::optional<int> number;  ///< Megatron's layer_number, for `layer_numbers`
  std::optional<int> expert;  ///< global expert id
  ParallelMode parallel = ParallelMode::kNone;
  bool sequence_parallel = false;
  RecipeKind recipe = RecipeKind::kNone;
  DType compute_dtype = DType::kF32;
  Communicator* tp_group = nullptr;  ///< null: not tensor parallel
  /// Under sequence parallelism the operand whose rows are split over tp_group is gathered in high precision
  /// before it is quantized, and not as codes after: where the ranks' slices would cut blocks of a format.
  bool gathers_before_quantizing = false;
};

/// How a tensor lies over tp_group when the hook sees it: operands as they are quantized (so a
/// column-parallel input and a row-parallel gradient are shard0 under sequence parallelism, unless they are
/// gathered before that), results before any reduction. Replicated for ParallelMode::kNone and for a tp_group
/// of one rank.
Layout layout_of(const LayerDescription& layer, TensorKind tensor) noexcept;

/// Whether the codes of this operand are gathered over tp_group under one scale.
bool codes_are_gathered(const LayerDescription& layer, TensorKind tensor) noexcept;

/// Which ranks share a scale that a *feature* makes (design section 5).
enum class AmaxScope {
  kTensor,  ///< the scale of the whole tensor: MAX over tp when it is sharded
  kTe,      ///< where the reference's current-scaling recipe reduces: where codes are gathered
  kLocal,   ///< each rank its own
};

std::string_view to_string(AmaxScope scope) noexcept;
std::optional<AmaxScope> parse_amax_scope(std::string_view text) noexcept;

/// Whether the amax of this tensor is reduced over tp_group. Throws Error(kUsage) for a partial sum under
/// kTensor: no maximum of summands is the amax of the sum.
bool reduces_amax(AmaxScope scope, const LayerDescription& layer, TensorKind tensor);

}  // namespace amaxscope

// What a recipe would make of a tensor that it does not quantize: codes for measuring, never used in a GEMM.
// Belongs to one tensor of one layer; used by the thread that runs it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "features/delayed_history.hpp"
#include "features/quantization_measure.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/quantizer.hpp"
#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

/// Formats and blocks are the recipe's defaults for this kind of tensor (E5M2 gradients under per-tensor
/// recipes, 128 x 128 blocks of a weight under FP8 block scaling, ...); an observed tensor is taken for an
/// activation. The scale of a per-tensor recipe and the tensor amax of NVFP4 are those of the whole tensor:
/// when it is sharded over tensor-parallel ranks its amax is reduced over them, whatever the amax_scope of
/// the session, so every rank of the group comes here, one with an empty shard too. That of an observed
/// tensor is this rank's own.
class WhatIf {
 public:
  using Result = std::array<std::optional<Measured>, 2>;  ///< by Direction

  WhatIf(RecipeKind recipe, const InspectedTensor& tensor);
  WhatIf(const WhatIf&) = delete;  // its quantizer refers to it
  WhatIf& operator=(const WhatIf&) = delete;

  [[nodiscard]] RecipeKind recipe() const noexcept { return recipe_; }
  /// Of delayed scaling; null for the others.
  [[nodiscard]] DelayedHistory* history() noexcept { return history_ ? &*history_ : nullptr; }
  [[nodiscard]] const DelayedHistory* history() const noexcept { return history_ ? &*history_ : nullptr; }

  /// Codes under one scale, that no block has another of.
  [[nodiscard]] bool has_one_scale() const noexcept { return quantizer_ == nullptr; }
  [[nodiscard]] DType format() const noexcept { return format_; }
  /// That scale for context.x on a device, without a wait of the host: one MAX over tp as in measure().
  /// Throws Error(kUsage) where a captured step cannot have it.
  [[nodiscard]] MadeScale scale_on_device(const InspectContext& context) const;

  /// What quantizing context.x in these directions would do, by Direction; one pass of the quantizer for
  /// both, and one MAX over tp where the scale needs it. Any shape: what does not fill a block is padded with
  /// zeros, which are not counted.
  [[nodiscard]] Result measure(const InspectContext& context, Usage wanted, bool with_rounding);

  /// The same in parts, for several what-ifs that share a reading of the tensor (what_ifs_at_once.hpp):
  /// start() makes the scale, with one MAX over tp where it needs it, add_rows() takes the rows from
  /// first_row on in their order, and finish() ends it. Parts are what add_quantization_error and
  /// add_quantization_error_of_cast allow, of whole blocks. Not of a tensor without elements.
  [[nodiscard]] bool goes_by_rows() const noexcept { return has_one_scale() || !has_tensor_amax(recipe_); }
  struct Parts {
    Usage wanted;
    Result result = {};
    std::array<BlockLayout, 2> layouts = {};  ///< by Direction, of a block recipe
  };
  [[nodiscard]] Parts start(const InspectContext& context, Usage wanted) const;
  void add_rows(const TensorView& rows, std::int64_t first_row, const TensorMoment& moment,
                Parts& parts) const;
  [[nodiscard]] Result finish(const TensorView& x, Parts parts) const;

 private:
  /// All but what the elements say.
  [[nodiscard]] Measured under_one_scale(const InspectContext& context) const;
  [[nodiscard]] Measured measure_one_scale(const InspectContext& context, bool with_rounding) const;

  RecipeKind recipe_;
  DType format_;
  std::optional<DelayedHistory> history_;
  std::shared_ptr<Quantizer> quantizer_;  ///< of a block recipe
  const InspectContext* now_ = nullptr;   ///< while the quantizer may reduce
};

}  // namespace amaxscope

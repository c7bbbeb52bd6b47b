// FP8 block scaling: an fp32 scale for 128 elements, or for 128 x 128 of a weight.
#pragma once

#include <string>

#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

struct BlockScalingOptions {
  bool power_of_two = true;  ///< scales rounded down to powers of two
  float epsilon = 0.0F;      ///< a block's amax below this is raised to it
};

/// Rowwise codes have a scale for 128 elements along K, columnwise ones, which are transposed, for 128 along
/// M; two-dimensional blocks are the same in both. Any shape: blocks at the edge are cut.
class Float8BlockQuantizer final : public BlockQuantizer {
 public:
  /// format: e4m3 or e5m2. name: of the tensor, for messages.
  Float8BlockQuantizer(DType format, bool two_dimensional, BlockScalingOptions options,
                       std::string name = {});
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kBlock; }
  [[nodiscard]] DType format() const noexcept override { return format_; }

 private:
  [[nodiscard]] std::shared_ptr<BlockScaledTensor> make(const TensorView& x, Usage usage) override;

  DType format_;
  bool two_dimensional_;
  BlockScalingOptions options_;
};

}  // namespace amaxscope

// What the quantizers of the block-scaled recipes share: room for codes and scales, and checks that name the
// tensor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/block_scale.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

/// One direction of a block-scaled format: its layout, and for NVFP4 what is common to all blocks.
struct BlockSide {
  BlockLayout layout;
  std::optional<TensorScale> tensor_scale = std::nullopt;
  bool rotated = false;
};

/// Writes the wanted directions of x as a matrix.
using BlockKernel = std::function<void(const TensorView& matrix, const BlockOutputs& out)>;

/// A tensor with room for the wanted directions, filled by the kernel. Throws Error(kUsage) when no direction
/// is wanted.
std::shared_ptr<BlockScaledTensor> make_block_scaled(const TensorView& x, RecipeKind recipe, Usage usage,
                                                     const BlockSide& rowwise, const BlockSide& columnwise,
                                                     const BlockKernel& kernel);

/// Throws Error(kTensor) naming the tensor and its shape unless M and K are multiples of `multiple`.
void require_whole_blocks(const Shape& shape, std::int64_t multiple, RecipeKind recipe,
                          std::string_view name);

/// target as what the recipe made of a tensor of this shape; for Quantizer::update. Throws Error(kUsage) for
/// another kind of tensor and Error(kTensor) for another shape.
BlockScaledTensor& require_block_scaled(QuantizedTensor& target, const Shape& shape, RecipeKind recipe,
                                        std::string_view name);

}  // namespace amaxscope

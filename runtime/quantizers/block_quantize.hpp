// What the quantizers of the block-scaled recipes share: room for codes and scales, and checks that name
// the tensor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/block_scale.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope {

/// One direction of a block-scaled format: its layout, and for NVFP4 what is common to all blocks.
struct BlockSide {
  BlockLayout layout;
  std::optional<TensorScale> tensor_scale = std::nullopt;
  bool rotated = false;
  DeviceNumbers device_amax = {};  ///< of the tensor_scale of codes on a device
};

/// Writes the wanted directions of x as a matrix.
using BlockKernel = std::function<void(const TensorView& matrix, const BlockOutputs& out)>;

/// A tensor with room for the wanted directions, filled by the kernel. Throws Error(kUsage) when no direction
/// is wanted.
std::shared_ptr<BlockScaledTensor> make_block_scaled(const TensorView& x, RecipeKind recipe, Usage usage,
                                                     const BlockSide& rowwise, const BlockSide& columnwise,
                                                     const BlockKernel& kernel);

/// The quantizers of these recipes: all of a tensor anew, in the directions that are wanted or there.
class BlockQuantizer : public Quantizer {
 public:
  /// Throws Error(kTensor), naming the tensor and its shape, where M or K is no multiple of what the recipe
  /// needs (required_multiple).
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) final;
  /// Throws Error(kUsage) for another kind of tensor and Error(kTensor) for another shape.
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) final;

 protected:
  /// name: of the tensor, for messages.
  explicit BlockQuantizer(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] const std::string& tensor_name() const noexcept { return name_; }
  [[nodiscard]] virtual std::shared_ptr<BlockScaledTensor> make(const TensorView& x, Usage usage) = 0;

 private:
  [[nodiscard]] std::shared_ptr<BlockScaledTensor> checked_make(const TensorView& x, Usage usage);

  std::string name_;
};

}  // namespace amaxscope

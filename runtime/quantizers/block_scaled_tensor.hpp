// What the block-scaled recipes make: MXFP8, FP8 block scaling and NVFP4 in one type.
// Owned through shared_ptr; mutated (update_usage, a quantizer's update) by one thread at a time.
#pragma once

#include <optional>
#include <span>

#include "kernels/block_scaled_view.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {

/// Codes and scales of one direction. codes and scales are undefined where the direction is not held; the
/// layout says in any case what it would be.
struct BlockScaledCodes {
  Tensor codes;
  Tensor scales;
  BlockLayout layout;
  std::optional<TensorScale> tensor_scale = std::nullopt;
  bool rotated = false;
  DeviceNumbers device_amax = {};  ///< of codes on a device with a tensor_scale

  [[nodiscard]] bool defined() const noexcept { return codes.defined(); }
  /// Borrows codes and scales.
  [[nodiscard]] BlockScaledView view() const;
};

/// One matrix of all parts' rows, in this order: codes and scales are moved, nothing is quantized again. All
/// parts have one layout and tensor scale (the first one's is taken), and all but the last whole blocks of
/// rows. Throws Error(kTensor) otherwise. Of codes on a device through the host, which waits; the result is
/// there again.
BlockScaledCodes stacked(std::span<const BlockScaledView> parts);

/// A copy on the host; of codes on a device it waits. The second level of NVFP4's scales becomes a number.
BlockScaledCodes to_host(const BlockScaledView& codes);
/// A copy of codes on the host, beside `like`. Does not block.
BlockScaledCodes to_device(const BlockScaledView& codes, const TensorView& like);

class BlockScaledTensor final : public QuantizedTensor {
 public:
  /// recipe: kMxfp8, kBlock or kNvfp4. shape: [.., K] of the tensor. At least one direction is defined.
  /// Throws Error(kTensor) when codes and scales do not fit the shape.
  BlockScaledTensor(Shape shape, RecipeKind recipe, BlockScaledCodes rowwise, BlockScaledCodes columnwise);

  [[nodiscard]] const Shape& shape() const noexcept override { return shape_; }
  [[nodiscard]] RecipeKind recipe() const noexcept { return recipe_; }
  [[nodiscard]] DType format(Direction direction) const override { return codes(direction).layout.format; }
  [[nodiscard]] std::string format_name(Direction direction) const override {
    return amaxscope::format_name(layout(direction).format, layout(direction).scale_format);
  }
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] GemmOperand operand(Direction direction) const override;
  /// Rotated codes are turned back, so that both directions stand for the same tensor.
  [[nodiscard]] Tensor dequantize(DType dtype, Direction direction) const override;
  /// A dropped direction can be made again from the other where both have the same blocks (two-dimensional
  /// ones, not rotated), on a device through the host, which waits; of one-dimensional blocks it cannot:
  /// Error(kUsage), before anything has changed.
  void update_usage(Usage wanted) override;

  /// The codes of a direction with their blocks, which describe the logical [M, K] in both directions. A view
  /// into this object. Throws Error(kUsage) naming the direction when it is not there.
  [[nodiscard]] BlockScaledView blocks(Direction direction) const;
  /// Of a direction, whether it is there or not.
  [[nodiscard]] const BlockLayout& layout(Direction direction) const noexcept {
    return codes(direction).layout;
  }
  /// Whether a direction can be had from the other: both have the same square blocks, and none is rotated.
  [[nodiscard]] bool directions_share_blocks() const noexcept;

 private:
  [[nodiscard]] const BlockScaledCodes& codes(Direction direction) const noexcept {
    return direction == Direction::kRowwise ? rowwise_ : columnwise_;
  }

  Shape shape_;
  RecipeKind recipe_;
  BlockScaledCodes rowwise_;
  BlockScaledCodes columnwise_;
};

}  // namespace amaxscope

// MXFP8: FP8 codes with a power-of-two scale for every 32 elements.
#pragma once

#include <string>

#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

struct Mxfp8Options {
  bool two_dimensional_weights = false;  ///< one scale for 32 x 32 elements of a weight
};

/// Rowwise codes have a scale for 32 elements along K, columnwise ones for 32 along M, each made of the
/// tensor itself. Needs no amax of other ranks.
class Mxfp8Quantizer final : public BlockQuantizer {
 public:
  /// format: e4m3 or e5m2. name: of the tensor, for messages.
  Mxfp8Quantizer(DType format, bool two_dimensional, std::string name = {});
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kMxfp8; }
  [[nodiscard]] DType format() const noexcept override { return format_; }

 private:
  [[nodiscard]] std::shared_ptr<BlockScaledTensor> make(const TensorView& x, Usage usage) override;

  DType format_;
  bool two_dimensional_;
};

}  // namespace amaxscope

// MXFP8: FP8 codes with a power-of-two scale for every 32 elements.
#pragma once

#include <string>

#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope {

class BlockScaledTensor;

struct Mxfp8Options {
  bool two_dimensional_weights = false;  ///< one scale for 32 x 32 elements of a weight
};

/// Rowwise codes have a scale for 32 elements along K, columnwise ones for 32 along M, each made of the
/// tensor itself. Needs no amax of other ranks.
class Mxfp8Quantizer final : public Quantizer {
 public:
  /// format: e4m3 or e5m2. name: of the tensor, for messages.
  Mxfp8Quantizer(DType format, bool two_dimensional, std::string name = {});
  /// Throws Error(kTensor) when M or K is not a multiple of 32.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kMxfp8; }
  [[nodiscard]] DType format() const noexcept override { return format_; }

 private:
  [[nodiscard]] std::shared_ptr<BlockScaledTensor> make(const TensorView& x, Usage usage) const;

  DType format_;
  bool two_dimensional_;
  std::string name_;
};

}  // namespace amaxscope

// Current scaling: amax of this tensor, MAX over a group, scale, cast.
#pragma once

#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/quantizer.hpp"
#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

struct CurrentScalingOptions {
  bool power_of_two = false;
  float epsilon = 0.0F;
};

/// RN(fp8_max * 2^-margin / amax); 1 for amax 0 or Inf; neither scale nor 1 / scale overflows or is zero.
ScaleFromAmax scale_with_margin(std::uint32_t amax_bits, DType format, int margin) noexcept;

/// FP8 codes of x under a scale, both wanted directions; the building block of every per-tensor quantizer.
/// A columnwise request alone is made as both in one pass and the rowwise codes are dropped.
/// Throws Error(kUsage) when no direction is wanted.
std::shared_ptr<Float8Tensor> quantize_float8(const TensorView& x, DType format, float scale, Usage usage);
/// The same into an existing Float8Tensor, in the directions that it has. Throws Error(kUsage) for another
/// type.
void requantize_float8(const TensorView& x, float scale, QuantizedTensor& target);

class Float8CurrentScalingQuantizer final : public Quantizer {
 public:
  /// reduce_amaxes empty: the scale is this rank's own. Where codes are gathered over ranks it must be over
  /// the group of the gather (recipe traffic: input of column parallel, gradient of row parallel, with
  /// sequence parallel). An empty shard takes part with amax 0. name: of the tensor, for messages.
  Float8CurrentScalingQuantizer(DType format, CurrentScalingOptions options, ReduceAmaxes reduce_amaxes,
                                std::string name = {});
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kCurrent; }
  [[nodiscard]] DType format() const noexcept override { return format_; }
  /// How the last scale came about.
  [[nodiscard]] ScaleClamp last_clamp() const noexcept { return last_clamp_; }

 private:
  float next_scale(const TensorView& x);

  DType format_;
  CurrentScalingOptions options_;
  ReduceAmaxes reduce_amaxes_;
  ScaleClamp last_clamp_ = ScaleClamp::kNone;
};

}  // namespace amaxscope

// Current scaling: amax of this tensor, MAX over a group, scale, cast.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/quantizer.hpp"
#include "runtime/quantizers/reduce_amaxes.hpp"

namespace amaxscope {

struct CurrentScalingOptions {
  bool power_of_two = false;
  float epsilon = 0.0F;
};

/// amax maps to fp8_max * 2^-margin.
ScaleOptions options_with_margin(DType format, int margin) noexcept;
/// RN(fp8_max * 2^-margin / amax); 1 for amax 0 or Inf; neither scale nor 1 / scale overflows or is zero.
ScaleFromAmax scale_with_margin(std::uint32_t amax_bits, DType format, int margin) noexcept;

/// How the scale of a tensor came about.
class ScaleOrigin {
 public:
  ScaleOrigin() = default;
  ScaleOrigin(ScaleOptions options, std::uint32_t amax) : options_(options), amax_(amax) {}
  ScaleOrigin(ScaleOptions options, std::shared_ptr<const Tensor> amax)
      : options_(options), on_device_(std::move(amax)) {}
  /// The first call waits for a device.
  [[nodiscard]] ScaleClamp clamp() const;
  /// u32 [1], the amax, of a scale that was made on a device; else null.
  [[nodiscard]] const Tensor* on_device() const noexcept { return on_device_.get(); }
  [[nodiscard]] const ScaleOptions& options() const noexcept { return options_; }

 private:
  ScaleOptions options_;
  mutable std::optional<std::uint32_t> amax_;
  std::shared_ptr<const Tensor> on_device_;
};
struct MadeScale {
  Float8Scale scale;
  ScaleOrigin origin;
};
/// amax of x, MAX over the ranks that share the scale (empty: this rank alone), and the scale of it, where x
/// is: on a device the host waits for nothing.
MadeScale scale_of_tensor(const TensorView& x, const ScaleOptions& options, const ReduceAmaxes& reduce);

/// FP8 codes of x under a scale, both wanted directions; the building block of every per-tensor quantizer.
/// A columnwise request alone is made as both in one pass and the rowwise codes are dropped.
/// Throws Error(kUsage) when no direction is wanted.
std::shared_ptr<Float8Tensor> quantize_float8(const TensorView& x, DType format, const Float8Scale& scale,
                                              Usage usage);
/// The same into an existing Float8Tensor, in the directions that it has. Throws Error(kUsage) for another
/// type.
void requantize_float8(const TensorView& x, const Float8Scale& scale, QuantizedTensor& target);

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
  /// How the last scale came about. Waits for the device where the tensor was on one.
  [[nodiscard]] ScaleClamp last_clamp() const { return last_.clamp(); }
  [[nodiscard]] const ScaleOrigin& last() const noexcept { return last_; }

 private:
  Float8Scale next_scale(const TensorView& x);

  DType format_;
  CurrentScalingOptions options_;
  ReduceAmaxes reduce_amaxes_;
  ScaleOrigin last_;
};

}  // namespace amaxscope

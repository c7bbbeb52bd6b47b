#include "features/quantization_measure.hpp"

#include <algorithm>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/rounding_error.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope {

namespace {

using Flags = std::vector<std::string>;

/// What the quantizer says of its scale, if these codes are under it: a feature may have made others, and a
/// cached weight may be older than the scale.
Flags flags_of_scale(const Quantizer* quantizer, const Float8Tensor& codes) {
  if (quantizer != nullptr) quantizer = &quantizer->unwrapped();
  if (const auto* delayed = dynamic_cast<const Float8Quantizer*>(quantizer)) {
    const DelayedScalingState::Slot& slot = delayed->slot();
    if (slot.scale != codes.scale()) return {};
    Flags flags = flags_of(slot.clamp);
    if (!slot.has_history) flags.emplace_back("no_history");
    return flags;
  }
  if (const auto* current = dynamic_cast<const Float8CurrentScalingQuantizer*>(quantizer)) {
    return flags_of(current->last_clamp());
  }
  return {};
}

SampledRounding rounding_sample(const TensorView& x, const BlockScaledView& codes) {
  if (x.numel() == 0) return {};
  const auto places = std::min<std::size_t>(kRoundingSamples, static_cast<std::size_t>(x.numel()));
  SampledRounding sample{.errors = std::vector<float>(places), .outward = std::vector<float>(places)};
  sampled_rounding_errors(x, codes, sample.errors, sample.outward);
  return sample;
}

Measured measure_float8(const TensorView& x, const Float8Tensor& codes, const Quantizer* quantizer,
                        bool with_rounding) {
  Measured measured;
  measured.flags = flags_of_scale(quantizer, codes);
  measured.scale = codes.scale();
  measured.error.scale_min = measured.error.scale_max = codes.scale_inv();
  if (x.numel() == 0) return measured;
  Tensor turned;
  TensorView logical;
  if (codes.usage().rowwise) {
    logical = codes.codes(Direction::kRowwise).view();
  } else {
    turned = Tensor::beside(x, codes.format(Direction::kColumnwise), Shape{x.rows(), x.cols()});
    transpose(codes.codes(Direction::kColumnwise), turned);
    logical = turned.view();
  }
  measured.error.elements = quantization_error(x, logical.reshaped(x.shape()), codes.scales().scale_view(),
                                               codes.scales().scale_inv_view());
  if (with_rounding) {
    const float scale_inv = codes.scale_inv();
    measured.rounding =
        rounding_sample(x, as_one_block(logical.reshaped({x.rows(), x.cols()}), false, scale_inv));
  }
  return measured;
}

}  // namespace

std::vector<std::string> flags_of(ScaleClamp clamp) {
  switch (clamp) {
    case ScaleClamp::kZeroAmax:
      return {"zero_amax"};
    case ScaleClamp::kInfAmax:
      return {"inf_amax"};
    case ScaleClamp::kScaleClamped:
      return {"scale_clamped"};
    case ScaleClamp::kNone:
      break;
  }
  return {};
}

const QuantizedTensor* codes_in(const QuantizedTensor* operand, Direction direction) {
  // Under one scale both directions have the same codes, whichever of them is held.
  if (dynamic_cast<const Float8Tensor*>(operand) != nullptr) return operand;
  const auto* blocks = dynamic_cast<const BlockScaledTensor*>(operand);
  return blocks != nullptr && blocks->usage().has(direction) ? blocks : nullptr;
}

Measured measure_codes(const TensorView& x, const QuantizedTensor& codes, Direction direction,
                       const Quantizer* quantizer, bool with_rounding) {
  if (const auto* float8 = dynamic_cast<const Float8Tensor*>(&codes)) {
    Measured measured = measure_float8(x, *float8, quantizer, with_rounding);
    measured.format = codes.format_name(direction);
    return measured;
  }
  const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&codes);
  AMAXSCOPE_CHECK(blocks != nullptr, ErrorCode::kInternal, "codes of shape {} are of an unknown kind",
                  to_string(codes.shape()));
  Measured measured;
  measured.format = codes.format_name(direction);
  if (x.numel() == 0) return measured;
  const BlockScaledView view = blocks->blocks(direction);
  measured.error = quantization_error(x, view);
  if (with_rounding) measured.rounding = rounding_sample(x, view);
  return measured;
}

BlockQuantizationError scales_of(const QuantizedTensor& codes, Direction direction) {
  BlockQuantizationError scales;
  if (const auto* float8 = dynamic_cast<const Float8Tensor*>(&codes)) {
    scales.scale_min = scales.scale_max = float8->scale_inv();
    return scales;
  }
  const BlockScaledView view = dynamic_cast<const BlockScaledTensor&>(codes).blocks(direction);
  require_host("scales of blocks", "the tensor", view.scales);
  for (std::int64_t i = 0; i < view.blocks_down(); ++i) {
    for (std::int64_t j = 0; j < view.blocks_across(); ++j) {
      const float scale = view.scale(i, j);
      // Which blocks are zero only the codes can say here; a scale of 0 or Inf is left out as elsewhere.
      if (!(scale > 0.0F) || scale > kFloatMax) continue;
      scales.scale_min = std::min(scales.scale_min, scale);
      scales.scale_max = std::max(scales.scale_max, scale);
    }
  }
  return scales;
}

}  // namespace amaxscope

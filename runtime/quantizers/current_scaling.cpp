#include "runtime/quantizers/current_scaling.hpp"

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"

namespace amaxscope {

ScaleFromAmax scale_with_margin(std::uint32_t amax_bits, DType format, int margin) noexcept {
  ScaleOptions options;
  options.max_value = std::ldexp(fp8_max(format), -margin);
  ScaleFromAmax result = scale_from_amax(amax_bits, options);
  // Below this 1 / scale overflows. Only a margin of 9 and more can get there, with an amax near FLT_MAX.
  constexpr float kSmallestInvertible = 0x1p-127F;
  if (result.scale < kSmallestInvertible) result = {kSmallestInvertible, ScaleClamp::kScaleClamped};
  return result;
}

std::shared_ptr<Float8Tensor> quantize_float8(const TensorView& x, DType format, float scale, Usage usage) {
  AMAXSCOPE_CHECK(usage.rowwise || usage.columnwise, ErrorCode::kUsage,
                  "a tensor of shape {} is quantized in no direction", to_string(x.shape()));
  const TensorView matrix = x.reshaped({x.rows(), x.cols()});
  const TensorView scale_view(&scale, DType::kF32, Shape{1}, x.device(), x.stream());
  Tensor rowwise(format, matrix.shape());
  Tensor columnwise;
  if (usage.columnwise) {
    columnwise = Tensor(format, {x.cols(), x.rows()});
    cast_transpose_to_fp8(matrix, scale_view, rowwise, columnwise);
  } else {
    cast_to_fp8(matrix, scale_view, rowwise);
  }
  rowwise.reshape(x.shape());
  if (!usage.rowwise) rowwise.release();
  return std::make_shared<Float8Tensor>(x.shape(), format, std::move(rowwise), std::move(columnwise), scale,
                                        scale_inverse(scale));
}

void requantize_float8(const TensorView& x, float scale, QuantizedTensor& target) {
  auto* codes = dynamic_cast<Float8Tensor*>(&target);
  AMAXSCOPE_CHECK(codes != nullptr, ErrorCode::kUsage, "only an FP8 tensor can be updated with FP8 codes");
  AMAXSCOPE_CHECK(codes->shape() == x.shape(), ErrorCode::kTensor,
                  "an FP8 tensor of shape {} updated from shape {}", to_string(codes->shape()),
                  to_string(x.shape()));
  const std::shared_ptr<Float8Tensor> fresh =
      quantize_float8(x, codes->format(Direction::kRowwise), scale, codes->usage());
  *codes = std::move(*fresh);
}

Float8CurrentScalingQuantizer::Float8CurrentScalingQuantizer(DType format, CurrentScalingOptions options,
                                                             ReduceAmaxes reduce_amaxes, std::string name)
    : format_(format), options_(options), reduce_amaxes_(std::move(reduce_amaxes)) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage, "{}: current scaling to {}; e4m3 and e5m2 are FP8",
                  name.empty() ? "a quantizer" : name, to_string(format));
}

float Float8CurrentScalingQuantizer::next_scale(const TensorView& x) {
  std::uint32_t amax = amax_bits(x);
  if (reduce_amaxes_) reduce_amaxes_({&amax, 1});
  const ScaleFromAmax result = scale_from_amax(
      amax,
      {.max_value = fp8_max(format_), .power_of_two = options_.power_of_two, .epsilon = options_.epsilon});
  last_clamp_ = result.clamp;
  return result.scale;
}

std::shared_ptr<QuantizedTensor> Float8CurrentScalingQuantizer::quantize(const TensorView& x, Usage usage,
                                                                         const TensorMoment&) {
  return quantize_float8(x, format_, next_scale(x), usage);
}

void Float8CurrentScalingQuantizer::update(const TensorView& x, QuantizedTensor& target,
                                           const TensorMoment&) {
  requantize_float8(x, next_scale(x), target);
}

}  // namespace amaxscope

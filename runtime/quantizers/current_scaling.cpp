#include "runtime/quantizers/current_scaling.hpp"

#include <cmath>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"

namespace amaxscope {

ScaleOptions options_with_margin(DType format, int margin) noexcept {
  return {.max_value = std::ldexp(fp8_max(format), -margin)};
}

ScaleFromAmax scale_with_margin(std::uint32_t amax_bits, DType format, int margin) noexcept {
  return scale_from_amax(amax_bits, options_with_margin(format, margin));
}

ScaleClamp ScaleOrigin::clamp() const {
  if (!amax_ && on_device_ != nullptr) amax_ = to_host(on_device_->view()).values<std::uint32_t>()[0];
  return amax_ ? scale_from_amax(*amax_, options_).clamp : ScaleClamp::kNone;
}

MadeScale scale_of_tensor(const TensorView& x, const ScaleOptions& options, const ReduceAmaxes& reduce) {
  if (x.device().kind == DeviceKind::kCpu) {
    std::uint32_t own = amax_bits(x);
    if (reduce) reduce(MutableTensorView(&own, DType::kU32, Shape{1}));
    return {scale_from_amax(own, options).scale, {options, own}};
  }
  auto largest = std::make_shared<Tensor>(Tensor::beside(x, DType::kU32, {1}));
  auto scales = std::make_shared<Tensor>(Tensor::beside(x, DType::kF32, {2}));
  amax(x, *largest);
  if (reduce) reduce(*largest);
  const MutableTensorView both = scales->mutable_view();
  scale_of_amax(largest->view(), options, both.slice(0, 1), both.slice(1, 1));
  return {Float8Scale(DeviceNumbers{std::move(scales)}), {options, std::move(largest)}};
}

std::shared_ptr<Float8Tensor> quantize_float8(const TensorView& x, DType format, const Float8Scale& scale,
                                              Usage usage) {
  AMAXSCOPE_CHECK(usage.rowwise || usage.columnwise, ErrorCode::kUsage,
                  "a tensor of shape {} is quantized in no direction", to_string(x.shape()));
  const TensorView matrix = x.reshaped({x.rows(), x.cols()});
  const Float8Scale there = scale.beside(x);
  const TensorView scale_view = there.scale_view();
  Tensor rowwise = Tensor::beside(x, format, matrix.shape());
  Tensor columnwise;
  if (usage.columnwise) {
    columnwise = Tensor::beside(x, format, {x.cols(), x.rows()});
    cast_transpose_to_fp8(matrix, scale_view, rowwise, columnwise);
  } else {
    cast_to_fp8(matrix, scale_view, rowwise);
  }
  rowwise.reshape(x.shape());
  if (!usage.rowwise) rowwise.release();
  return std::make_shared<Float8Tensor>(x.shape(), format, std::move(rowwise), std::move(columnwise), there);
}

void requantize_float8(const TensorView& x, const Float8Scale& scale, QuantizedTensor& target) {
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

Float8Scale Float8CurrentScalingQuantizer::next_scale(const TensorView& x) {
  MadeScale made = scale_of_tensor(
      x, {.max_value = fp8_max(format_), .power_of_two = options_.power_of_two, .epsilon = options_.epsilon},
      reduce_amaxes_);
  last_ = std::move(made.origin);
  return std::move(made.scale);
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

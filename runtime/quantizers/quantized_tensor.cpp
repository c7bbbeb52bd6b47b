#include "runtime/quantizers/quantized_tensor.hpp"

#include <algorithm>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/dequantize.hpp"

namespace amaxscope {

namespace {

Shape matrix_of(const Shape& shape) { return {shape.rows(), shape.cols()}; }
Shape transposed_matrix_of(const Shape& shape) { return {shape.cols(), shape.rows()}; }

void check_codes(const Shape& shape, DType format, const Tensor& rowwise, const Tensor& columnwise) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor,
                  "an FP8 tensor was given the format {}; e4m3 and e5m2 are FP8", to_string(format));
  AMAXSCOPE_CHECK(rowwise.defined() || columnwise.defined(), ErrorCode::kUsage,
                  "an FP8 tensor of shape {} needs codes in at least one direction", to_string(shape));
  AMAXSCOPE_CHECK(!rowwise.defined() || (rowwise.shape() == shape && rowwise.dtype() == format),
                  ErrorCode::kTensor, "rowwise codes are {} {}, not {} {}", to_string(rowwise.dtype()),
                  to_string(rowwise.shape()), to_string(format), to_string(shape));
  AMAXSCOPE_CHECK(!columnwise.defined() ||
                      (columnwise.shape() == transposed_matrix_of(shape) && columnwise.dtype() == format),
                  ErrorCode::kTensor, "columnwise codes are {} {}, not {} {}", to_string(columnwise.dtype()),
                  to_string(columnwise.shape()), to_string(format), to_string(transposed_matrix_of(shape)));
}

}  // namespace

std::string format_name(DType codes, std::optional<DType> scales) {
  const auto upper = [](DType dtype) {
    std::string text(to_string(dtype));
    std::ranges::transform(text, text.begin(),
                           [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
    return text;
  };
  return scales ? fmt::format("{}+{} scales", upper(codes), upper(*scales)) : upper(codes);
}

std::string QuantizedTensor::format_name(Direction direction) const {
  const DType made = format(direction);
  return is_high_precision(made) ? std::string("high precision") : amaxscope::format_name(made);
}

Float8Scale::Float8Scale(float scale) : scale_(scale), scale_inv_(scale_inverse(scale)) {}

void Float8Scale::fetch() const {
  if (scale_ != 0.0F || !on_device()) return;
  const Tensor here = to_host(on_device_.view(0, 2));
  scale_ = here.values<float>()[0];
  scale_inv_ = here.values<float>()[1];
}

float Float8Scale::scale() const {
  fetch();
  return scale_;
}

float Float8Scale::scale_inv() const {
  fetch();
  return scale_inv_;
}

TensorView Float8Scale::scale_view() const {
  return on_device() ? on_device_.view(0) : TensorView(&scale_, DType::kF32, Shape{1});
}

TensorView Float8Scale::scale_inv_view() const {
  return on_device() ? on_device_.view(1) : TensorView(&scale_inv_, DType::kF32, Shape{1});
}

Float8Scale Float8Scale::beside(const TensorView& like) const {
  if (on_device() || like.device().kind == DeviceKind::kCpu) return *this;
  Float8Scale there = *this;
  there.on_device_.tensor =
      std::make_shared<const Tensor>(to_device(Tensor::of({scale_, scale_inv_}, {2}).view(), like));
  return there;
}

Float8Tensor::Float8Tensor(Shape shape, DType format, Tensor rowwise_codes, Tensor columnwise_codes,
                           Float8Scale scale)
    : shape_(shape),
      format_(format),
      rowwise_(std::move(rowwise_codes)),
      columnwise_(std::move(columnwise_codes)),
      scale_(std::move(scale)) {
  check_codes(shape_, format_, rowwise_, columnwise_);
  scale_ = scale_.beside(rowwise_.defined() ? rowwise_.view() : columnwise_.view());
}

Usage Float8Tensor::usage() const noexcept { return {rowwise_.defined(), columnwise_.defined()}; }

const Tensor& Float8Tensor::codes(Direction direction) const {
  const Tensor& codes = direction == Direction::kRowwise ? rowwise_ : columnwise_;
  AMAXSCOPE_CHECK(codes.defined(), ErrorCode::kUsage,
                  "the {} codes of an FP8 tensor of shape {} are not there", to_string(direction),
                  to_string(shape_));
  return codes;
}

GemmOperand Float8Tensor::operand(Direction direction) const {
  const TensorView view = codes(direction);
  const Shape matrix = direction == Direction::kRowwise ? matrix_of(shape_) : view.shape();
  GemmOperand operand{.data = view.reshaped(matrix), .transposed = false};
  if (scale_.on_device()) {
    operand.device_scale_inv = scale_.scale_inv_view();
  } else {
    operand.scale_inv = scale_.scale_inv();
  }
  return operand;
}

Tensor Float8Tensor::dequantize(DType dtype, Direction direction) const {
  AMAXSCOPE_CHECK(is_high_precision(dtype), ErrorCode::kTensor, "cannot dequantize to {}", to_string(dtype));
  const TensorView scale_inv = scale_.scale_inv_view();
  const TensorView like = codes(direction).view();
  const DType decoded = dtype == DType::kF64 ? DType::kF32 : dtype;
  Tensor values = Tensor::beside(like, decoded, shape_);
  if (direction == Direction::kRowwise) {
    dequantize_fp8(codes(direction), scale_inv, values);
  } else {
    Tensor logical = Tensor::beside(like, format_, matrix_of(shape_));
    transpose(codes(direction), logical);
    logical.reshape(shape_);
    dequantize_fp8(logical.view(), scale_inv, values);
  }
  if (decoded == dtype) return values;
  Tensor widened = Tensor::beside(like, dtype, shape_);
  convert(values.view(), widened);
  return widened;
}

void Float8Tensor::update_usage(Usage wanted) {
  if (wanted.rowwise && !rowwise_.defined()) {
    Tensor made = Tensor::beside(columnwise_.view(), format_, matrix_of(shape_));
    transpose(codes(Direction::kColumnwise), made);
    made.reshape(shape_);
    rowwise_ = std::move(made);
  }
  if (wanted.columnwise && !columnwise_.defined()) {
    Tensor made = Tensor::beside(rowwise_.view(), format_, transposed_matrix_of(shape_));
    transpose(codes(Direction::kRowwise).view().reshaped(matrix_of(shape_)), made);
    columnwise_ = std::move(made);
  }
  if (!wanted.rowwise) rowwise_.release();
  if (!wanted.columnwise) columnwise_.release();
}

void Float8Tensor::assign(Tensor rowwise_codes, Tensor columnwise_codes, Float8Scale scale) {
  check_codes(shape_, format_, rowwise_codes, columnwise_codes);
  rowwise_ = std::move(rowwise_codes);
  columnwise_ = std::move(columnwise_codes);
  scale_ = scale.beside(rowwise_.defined() ? rowwise_.view() : columnwise_.view());
}

HighPrecisionTensor::HighPrecisionTensor(Tensor values) : owned_(std::move(values)), view_(owned_.view()) {
  AMAXSCOPE_CHECK(is_high_precision(view_.dtype()), ErrorCode::kTensor, "{} is not a high-precision type",
                  to_string(view_.dtype()));
}

HighPrecisionTensor::HighPrecisionTensor(Tensor values, std::string dequantized_from)
    : HighPrecisionTensor(std::move(values)) {
  dequantized_from_ = std::move(dequantized_from);
}

std::string HighPrecisionTensor::format_name(Direction direction) const {
  return dequantized_from_.empty() ? QuantizedTensor::format_name(direction)
                                   : dequantized_from_ + ", dequantized";
}

HighPrecisionTensor::HighPrecisionTensor(const TensorView& borrowed) : view_(borrowed) {
  AMAXSCOPE_CHECK(is_high_precision(view_.dtype()), ErrorCode::kTensor, "{} is not a high-precision type",
                  to_string(view_.dtype()));
}

GemmOperand HighPrecisionTensor::operand(Direction direction) const {
  return {view_.reshaped(matrix_of(view_.shape())), direction == Direction::kColumnwise, 1.0F};
}

Tensor HighPrecisionTensor::dequantize(DType dtype, Direction) const {
  AMAXSCOPE_CHECK(is_high_precision(dtype), ErrorCode::kTensor, "cannot convert {} to {}",
                  to_string(view_.dtype()), to_string(dtype));
  Tensor values = Tensor::beside(view_, dtype, view_.shape());
  convert(view_, values);
  return values;
}

void HighPrecisionTensor::assign(const TensorView& values) {
  AMAXSCOPE_CHECK(owned_.defined(), ErrorCode::kUsage, "a borrowed tensor of shape {} cannot be assigned to",
                  to_string(view_.shape()));
  AMAXSCOPE_CHECK(values.shape() == view_.shape() && values.dtype() == view_.dtype() && values.contiguous() &&
                      values.device() == view_.device(),
                  ErrorCode::kTensor, "cannot assign {} {} on {} to {} {} on {}", to_string(values.dtype()),
                  to_string(values.shape()), to_string(values.device()), to_string(view_.dtype()),
                  to_string(view_.shape()), to_string(view_.device()));
  copy_tensor(owned_, values);
}

}  // namespace amaxscope

#include "runtime/quantizers/quantized_tensor.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "kernels/cast.hpp"
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

Float8Tensor::Float8Tensor(Shape shape, DType format, Tensor rowwise_codes, Tensor columnwise_codes,
                           float scale, float scale_inv)
    : shape_(shape),
      format_(format),
      rowwise_(std::move(rowwise_codes)),
      columnwise_(std::move(columnwise_codes)),
      scale_(scale),
      scale_inv_(scale_inv) {
  check_codes(shape_, format_, rowwise_, columnwise_);
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
  return {view.reshaped(matrix), false, scale_inv_};
}

Tensor Float8Tensor::dequantize(DType dtype, Direction direction) const {
  AMAXSCOPE_CHECK(is_high_precision(dtype), ErrorCode::kTensor, "cannot dequantize to {}", to_string(dtype));
  const TensorView scale_inv(&scale_inv_, DType::kF32, Shape{1});
  const DType decoded = dtype == DType::kF64 ? DType::kF32 : dtype;
  Tensor values(decoded, shape_);
  if (direction == Direction::kRowwise) {
    dequantize_fp8(codes(direction), scale_inv, values);
  } else {
    Tensor logical(format_, matrix_of(shape_));
    transpose(codes(direction), logical);
    logical.reshape(shape_);
    dequantize_fp8(logical.view(), scale_inv, values);
  }
  if (decoded == dtype) return values;
  Tensor widened(dtype, shape_);
  convert(values.view(), widened);
  return widened;
}

void Float8Tensor::update_usage(Usage wanted) {
  if (wanted.rowwise && !rowwise_.defined()) {
    Tensor made(format_, matrix_of(shape_));
    transpose(codes(Direction::kColumnwise), made);
    made.reshape(shape_);
    rowwise_ = std::move(made);
  }
  if (wanted.columnwise && !columnwise_.defined()) {
    Tensor made(format_, transposed_matrix_of(shape_));
    transpose(codes(Direction::kRowwise).view().reshaped(matrix_of(shape_)), made);
    columnwise_ = std::move(made);
  }
  if (!wanted.rowwise) rowwise_.release();
  if (!wanted.columnwise) columnwise_.release();
}

void Float8Tensor::assign(Tensor rowwise_codes, Tensor columnwise_codes, float scale, float scale_inv) {
  check_codes(shape_, format_, rowwise_codes, columnwise_codes);
  rowwise_ = std::move(rowwise_codes);
  columnwise_ = std::move(columnwise_codes);
  scale_ = scale;
  scale_inv_ = scale_inv;
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
  Tensor values(dtype, view_.shape());
  convert(view_, values);
  return values;
}

void HighPrecisionTensor::assign(const TensorView& values) {
  AMAXSCOPE_CHECK(owned_.defined(), ErrorCode::kUsage, "a borrowed tensor of shape {} cannot be assigned to",
                  to_string(view_.shape()));
  AMAXSCOPE_CHECK(values.shape() == view_.shape() && values.dtype() == view_.dtype() && values.contiguous() &&
                      values.device().kind == DeviceKind::kCpu,
                  ErrorCode::kTensor, "cannot assign {} {} on {} to {} {} on {}", to_string(values.dtype()),
                  to_string(values.shape()), to_string(values.device()), to_string(view_.dtype()),
                  to_string(view_.shape()), to_string(view_.device()));
  if (values.bytes() != 0) std::memmove(owned_.mutable_view().data(), values.data(), values.bytes());
}

}  // namespace amaxscope

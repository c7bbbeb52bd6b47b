#include "runtime/quantizers/block_scaled_tensor.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "kernels/dequantize.hpp"

namespace amaxscope {

namespace {

void set_code(Tensor& codes, std::int64_t index, std::uint8_t code) {
  auto* const bytes = static_cast<std::uint8_t*>(codes.mutable_view().data());
  if (codes.dtype() != DType::kE2M1) {
    bytes[index] = code;
    return;
  }
  const auto shift = static_cast<unsigned>(index % 2 * 4);
  bytes[index / 2] = static_cast<std::uint8_t>((bytes[index / 2] & ~(0xFU << shift)) | (code << shift));
}

/// Copies the scales of `from`, whose first row is row `first` of `to`.
void copy_scales(const BlockScaledView& from, std::int64_t first, BlockScaledCodes& to) {
  const BlockLayout& layout = to.layout;
  const auto width = static_cast<std::size_t>(bits_per_element(layout.scale_format)) / 8;
  const BlockScaledView made = to.view();
  const auto* const source = static_cast<const std::byte*>(from.scales.data());
  auto* const target = static_cast<std::byte*>(to.scales.mutable_view().data());
  for (std::int64_t row = 0; row < from.rows(); row += layout.scale_rows) {
    for (std::int64_t col = 0; col < from.cols(); col += layout.scale_cols) {
      std::memcpy(target + static_cast<std::size_t>(made.scale_index(first + row, col)) * width,
                  source + static_cast<std::size_t>(from.scale_index(row, col)) * width, width);
    }
  }
}

void allocate(BlockScaledCodes& codes, std::int64_t rows, std::int64_t cols) {
  codes.codes = Tensor(codes.layout.format, codes.layout.codes_shape(rows, cols));
  codes.scales = Tensor(codes.layout.scale_format, codes.layout.scales_shape(rows, cols));
}

bool on_device(const BlockScaledView& codes) { return codes.codes.device().kind != DeviceKind::kCpu; }

/// The same blocks in the layout of the other direction: every code and every scale finds its place.
void remake(const BlockScaledView& from, BlockScaledCodes& to) {
  if (on_device(from)) {
    const BlockScaledCodes here = to_host(from);
    BlockScaledCodes made{.codes = {}, .scales = {}, .layout = to.layout};
    remake(here.view(), made);
    to = to_device(made.view(), from.codes);
    return;
  }
  const std::int64_t rows = from.rows();
  const std::int64_t cols = from.cols();
  allocate(to, rows, cols);
  to.tensor_scale = from.tensor_scale;
  to.rotated = false;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      set_code(to.codes, to.layout.codes_transposed ? col * rows + row : row * cols + col,
               from.code(row, col));
    }
  }
  copy_scales(from, 0, to);
}

/// Copies the codes of a part whose first row is row `first` of `to`; rows of codes start at whole bytes.
void copy_codes(const BlockScaledView& part, std::int64_t first, BlockScaledCodes& to) {
  const auto bytes_of = [&](std::int64_t codes) { return size_bytes(part.layout.format, codes); };
  const auto* source = static_cast<const std::byte*>(part.codes.data());
  auto* target = static_cast<std::byte*>(to.codes.mutable_view().data());
  if (part.codes.numel() == 0) return;
  if (!part.layout.codes_transposed) {
    std::memcpy(target + bytes_of(first * part.cols()), source, part.codes.bytes());
    return;
  }
  const std::size_t run = bytes_of(part.rows());
  for (std::int64_t col = 0; col < part.cols(); ++col) {
    std::memcpy(target + bytes_of(col * to.codes.cols() + first), source + bytes_of(col * part.rows()), run);
  }
}

void drop(BlockScaledCodes& codes) {
  codes.codes.release();
  codes.scales.release();
}

}  // namespace

BlockScaledView BlockScaledCodes::view() const {
  BlockScaledView view{
      .codes = codes, .scales = scales, .layout = layout, .tensor_scale = tensor_scale, .rotated = rotated};
  if (device_amax.tensor != nullptr) view.device_amax = device_amax.view(0);
  return view;
}

BlockScaledCodes to_host(const BlockScaledView& codes) {
  BlockScaledCodes here{.codes = to_host(codes.codes),
                        .scales = to_host(codes.scales),
                        .layout = codes.layout,
                        .tensor_scale = codes.tensor_scale,
                        .rotated = codes.rotated};
  if (codes.device_amax && here.tensor_scale) {
    const Tensor amax = to_host(*codes.device_amax);
    here.tensor_scale->amax = std::bit_cast<float>(amax.values<std::uint32_t>()[0]);
  }
  return here;
}

BlockScaledCodes to_device(const BlockScaledView& codes, const TensorView& like) {
  BlockScaledCodes there{.codes = to_device(codes.codes, like),
                         .scales = to_device(codes.scales, like),
                         .layout = codes.layout,
                         .tensor_scale = codes.tensor_scale,
                         .rotated = codes.rotated};
  if (codes.tensor_scale) {
    const Tensor amax =
        Tensor::of<std::uint32_t>({std::bit_cast<std::uint32_t>(codes.tensor_scale->amax)}, {1});
    there.device_amax = {std::make_shared<const Tensor>(to_device(amax.view(), like))};
  }
  return there;
}

BlockScaledCodes stacked(std::span<const BlockScaledView> parts) {
  AMAXSCOPE_CHECK(!parts.empty(), ErrorCode::kTensor, "no part to stack");
  const BlockScaledView& first = parts.front();
  if (on_device(first)) {
    std::vector<BlockScaledCodes> here;
    std::vector<BlockScaledView> views;
    for (const BlockScaledView& part : parts) here.push_back(to_host(part));
    for (const BlockScaledCodes& part : here) views.push_back(part.view());
    return to_device(stacked(views).view(), first.codes);
  }
  std::int64_t rows = 0;
  for (const BlockScaledView& part : parts) {
    AMAXSCOPE_CHECK(
        part.layout == first.layout && part.cols() == first.cols() && part.rotated == first.rotated,
        ErrorCode::kTensor, "parts of different layouts or widths ({} and {}) cannot be stacked",
        first.cols(), part.cols());
    AMAXSCOPE_CHECK(rows % first.layout.block_rows == 0, ErrorCode::kTensor,
                    "parts of {} rows in all do not end at a block of {} rows, so more cannot follow", rows,
                    first.layout.block_rows);
    rows += part.rows();
  }
  BlockScaledCodes result{.codes = {},
                          .scales = {},
                          .layout = first.layout,
                          .tensor_scale = first.tensor_scale,
                          .rotated = first.rotated};
  allocate(result, rows, first.cols());
  std::int64_t row = 0;
  for (const BlockScaledView& part : parts) {
    copy_codes(part, row, result);
    copy_scales(part, row, result);
    row += part.rows();
  }
  return result;
}

BlockScaledTensor::BlockScaledTensor(Shape shape, RecipeKind recipe, BlockScaledCodes rowwise,
                                     BlockScaledCodes columnwise)
    : shape_(shape), recipe_(recipe), rowwise_(std::move(rowwise)), columnwise_(std::move(columnwise)) {
  AMAXSCOPE_CHECK(
      recipe == RecipeKind::kMxfp8 || recipe == RecipeKind::kBlock || recipe == RecipeKind::kNvfp4,
      ErrorCode::kUsage, "a block-scaled tensor of the recipe {}; block-scaled are mxfp8, block and nvfp4",
      to_string(recipe));
  AMAXSCOPE_CHECK(rowwise_.defined() || columnwise_.defined(), ErrorCode::kUsage,
                  "a block-scaled tensor of shape {} needs codes in at least one direction",
                  to_string(shape));
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    if (!codes(direction).defined()) continue;
    const BlockScaledView view = codes(direction).view();
    require_valid(view, to_string(direction));
    AMAXSCOPE_CHECK(view.rows() == shape.rows() && view.cols() == shape.cols(), ErrorCode::kTensor,
                    "{} codes are of {} x {}, the tensor has shape {}", to_string(direction), view.rows(),
                    view.cols(), to_string(shape));
  }
}

Usage BlockScaledTensor::usage() const noexcept { return {rowwise_.defined(), columnwise_.defined()}; }

BlockScaledView BlockScaledTensor::blocks(Direction direction) const {
  AMAXSCOPE_CHECK(codes(direction).defined(), ErrorCode::kUsage,
                  "the {} codes of a {} tensor of shape {} are not there", to_string(direction),
                  to_string(recipe_), to_string(shape_));
  return codes(direction).view();
}

GemmOperand BlockScaledTensor::operand(Direction direction) const {
  const BlockScaledView view = blocks(direction);
  const bool transposed = view.layout.codes_transposed != (direction == Direction::kColumnwise);
  return {.data = view.codes, .transposed = transposed, .scale_inv = 1.0F, .blocks = view};
}

Tensor BlockScaledTensor::dequantize(DType dtype, Direction direction) const {
  AMAXSCOPE_CHECK(is_high_precision(dtype), ErrorCode::kTensor, "cannot dequantize to {}", to_string(dtype));
  const DType decoded = dtype == DType::kF64 ? DType::kF32 : dtype;
  const BlockScaledView view = blocks(direction);
  Tensor values = Tensor::beside(view.codes, decoded, shape_);
  dequantize_blocks(view, values);
  if (decoded == dtype) return values;
  Tensor widened = Tensor::beside(view.codes, dtype, shape_);
  convert(values.view(), widened);
  return widened;
}

bool BlockScaledTensor::directions_share_blocks() const noexcept {
  const std::int64_t size = rowwise_.layout.block_rows;
  return rowwise_.layout.block_cols == size && columnwise_.layout.block_rows == size &&
         columnwise_.layout.block_cols == size && !rowwise_.rotated && !columnwise_.rotated;
}

void BlockScaledTensor::update_usage(Usage wanted) {
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    AMAXSCOPE_CHECK(
        !wanted.has(direction) || codes(direction).defined() || directions_share_blocks(), ErrorCode::kUsage,
        "the {} codes of a {} tensor of shape {} are not there and cannot be made from the others, "
        "which have other blocks; quantize again",
        to_string(direction), to_string(recipe_), to_string(shape_));
  }
  if (wanted.rowwise && !rowwise_.defined()) remake(columnwise_.view(), rowwise_);
  if (wanted.columnwise && !columnwise_.defined()) remake(rowwise_.view(), columnwise_);
  if (!wanted.rowwise) drop(rowwise_);
  if (!wanted.columnwise) drop(columnwise_);
}

}  // namespace amaxscope

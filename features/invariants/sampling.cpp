#include "features/invariants/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

namespace {

/// Half a step of a binary format at a finite value.
float half_step(float value, int mantissa_bits, int min_exponent) {
  const int exponent = value == 0.0F ? min_exponent : std::max(std::ilogb(value), min_exponent);
  return std::ldexp(1.0F, exponent - mantissa_bits - 1);
}

float value_of(DType format, std::uint8_t code) {
  if (format == DType::kE2M1) return decode_e2m1(code);
  return format == DType::kE4M3 ? kFp8Values<DType::kE4M3>[code] : kFp8Values<DType::kE5M2>[code];
}

/// A code under its scale.
DecodedElement decoded(DType format, std::uint8_t code, float scale) {
  const CodeGrid grid = code_grid(format);
  const float value = value_of(format, code);
  const float step = std::isfinite(value) ? half_step(value, grid.mantissa_bits, grid.min_exponent) : 0.0F;
  return {.value = value * scale, .tolerance = step * scale, .saturated = std::abs(value) == grid.max};
}

std::optional<DecodedElement> decoded(const Float8Tensor& tensor, Direction direction, std::int64_t index) {
  if (!tensor.usage().has(direction)) return std::nullopt;
  const std::int64_t columns = tensor.shape().cols();
  const std::int64_t stored =
      direction == Direction::kRowwise ? index : (index % columns) * tensor.shape().rows() + index / columns;
  const std::uint8_t code = tensor.codes(direction).values<std::uint8_t>()[static_cast<std::size_t>(stored)];
  return decoded(tensor.format(direction), code, tensor.scale_inv());
}

std::optional<DecodedElement> decoded(const HighPrecisionTensor& tensor, std::int64_t index) {
  const float value = element(tensor.view(), index);
  const DType dtype = tensor.view().dtype();
  const bool exact = dtype == DType::kF32 || dtype == DType::kF64;
  if (exact || !std::isfinite(value)) return DecodedElement{.value = value};
  const bool bf16 = dtype == DType::kBF16;
  return DecodedElement{.value = value, .tolerance = half_step(value, bf16 ? 7 : 10, bf16 ? -126 : -14)};
}

std::optional<DecodedElement> decoded(const BlockScaledTensor& tensor, Direction direction,
                                      std::int64_t index) {
  if (!tensor.usage().has(direction)) return std::nullopt;
  const BlockScaledView view = tensor.blocks(direction);
  if (view.rotated) return std::nullopt;
  require_host("single codes", "the tensor", view.codes);
  const std::int64_t row = index / view.cols();
  const std::int64_t col = index % view.cols();
  return decoded(view.layout.format, view.code(row, col), view.stored_scale(view.scale_index(row, col)));
}

}  // namespace

std::vector<std::int64_t> sample_positions(std::int64_t numel, std::size_t count) {
  const auto wanted = std::min(numel, static_cast<std::int64_t>(count));
  std::vector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(wanted));
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t begin = numel * i / wanted;
    const std::int64_t length = numel * (i + 1) / wanted - begin;
    const std::uint64_t scatter =
        combine_hashes(static_cast<std::uint64_t>(numel), static_cast<std::uint64_t>(i));
    positions.push_back(begin + static_cast<std::int64_t>(scatter % static_cast<std::uint64_t>(length)));
  }
  return positions;
}

float element(const TensorView& x, std::int64_t index) {
  require_host("single elements", "the tensor", x);
  const std::int64_t at = x.contiguous() ? index : index / x.cols() * x.row_stride() + index % x.cols();
  switch (x.dtype()) {
    case DType::kF64:
      return static_cast<float>(static_cast<const double*>(x.data())[at]);
    case DType::kF32:
      return static_cast<const float*>(x.data())[at];
    case DType::kF16:
      return to_float(static_cast<const F16*>(x.data())[at]);
    case DType::kBF16:
      return to_float(static_cast<const BF16*>(x.data())[at]);
    default:
      throw Error(
          ErrorCode::kTensor,
          fmt::format("an element of {} is read; allowed are f64, f32, f16 and bf16", to_string(x.dtype())));
  }
}

std::optional<DecodedElement> decoded_element(const QuantizedTensor& tensor, Direction direction,
                                              std::int64_t index) {
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(&tensor))
    return decoded(*codes, direction, index);
  if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&tensor))
    return decoded(*blocks, direction, index);
  if (const auto* plain = dynamic_cast<const HighPrecisionTensor*>(&tensor)) return decoded(*plain, index);
  return std::nullopt;
}

std::optional<std::uint64_t> operand_fingerprint(const QuantizedTensor& tensor, Direction direction) {
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(&tensor)) {
    if (!codes->usage().has(direction)) return std::nullopt;
    const std::uint64_t scale = std::bit_cast<std::uint32_t>(codes->scale_inv());
    const auto format = static_cast<std::uint64_t>(codes->format(direction));
    return combine_hashes(content_hash(codes->codes(direction)), scale | (format << 32));
  }
  if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&tensor)) {
    if (!blocks->usage().has(direction)) return std::nullopt;
    const BlockScaledView view = blocks->blocks(direction);
    require_host("fingerprints of codes", "the tensor", view.codes);
    const std::uint64_t amax = view.tensor_scale ? std::bit_cast<std::uint32_t>(view.tensor_scale->amax) : 0U;
    const auto format = static_cast<std::uint64_t>(view.layout.format);
    return combine_hashes(combine_hashes(content_hash(view.codes), content_hash(view.scales)),
                          amax | (format << 32));
  }
  if (const auto* plain = dynamic_cast<const HighPrecisionTensor*>(&tensor)) {
    return combine_hashes(content_hash(plain->view()), static_cast<std::uint64_t>(plain->view().dtype()));
  }
  return std::nullopt;
}

}  // namespace amaxscope

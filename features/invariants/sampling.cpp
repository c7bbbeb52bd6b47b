#include "features/invariants/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

namespace {

/// Half a step of a binary format at a value: mantissa bits and the smallest normal decide.
float half_step(float magnitude, int mantissa_bits, float smallest_normal) {
  const int exponent = std::ilogb(std::max(magnitude, smallest_normal));
  return std::ldexp(1.0F, exponent - mantissa_bits - 1);
}

/// A code of its own, without a scale.
struct DecodedCode {
  float value;
  float step;  ///< half of one
  bool saturated;
};

DecodedCode decode(DType format, std::uint8_t code) {
  switch (format) {
    case DType::kE4M3: {
      const float value = kFp8Values<DType::kE4M3>[code];
      return {value, std::isfinite(value) ? half_step(std::abs(value), 3, 0x1p-6F) : 0.0F,
              (code & 0x7FU) == 0x7EU};
    }
    case DType::kE5M2: {
      const float value = kFp8Values<DType::kE5M2>[code];
      return {value, std::isfinite(value) ? half_step(std::abs(value), 2, 0x1p-14F) : 0.0F,
              (code & 0x7FU) == 0x7BU};
    }
    default: {
      const float value = decode_e2m1(code);
      return {value, half_step(std::abs(value), 1, 1.0F), (code & 0x7U) == 0x7U};
    }
  }
}

std::optional<DecodedElement> decoded(const Float8Tensor& tensor, Direction direction, std::int64_t index) {
  if (!tensor.usage().has(direction)) return std::nullopt;
  const std::int64_t columns = tensor.shape().cols();
  const std::int64_t stored =
      direction == Direction::kRowwise ? index : (index % columns) * tensor.shape().rows() + index / columns;
  const std::uint8_t code = tensor.codes(direction).values<std::uint8_t>()[static_cast<std::size_t>(stored)];
  const DecodedCode decoded = decode(tensor.format(direction), code);
  return DecodedElement{.value = decoded.value * tensor.scale_inv(),
                        .tolerance = decoded.step * tensor.scale_inv(),
                        .saturated = decoded.saturated};
}

std::optional<DecodedElement> decoded(const HighPrecisionTensor& tensor, std::int64_t index) {
  const float value = element(tensor.view(), index);
  const int mantissa_bits = tensor.view().dtype() == DType::kBF16 ? 7 : 10;
  const bool exact = tensor.view().dtype() == DType::kF32 || tensor.view().dtype() == DType::kF64;
  const float step = exact || !std::isfinite(value)
                         ? 0.0F
                         : half_step(std::abs(value), mantissa_bits,
                                     tensor.view().dtype() == DType::kBF16 ? 0x1p-126F : 0x1p-14F);
  return DecodedElement{.value = value, .tolerance = step};
}

std::optional<DecodedElement> decoded(const BlockScaledTensor& tensor, Direction direction,
                                      std::int64_t index) {
  if (!tensor.usage().has(direction)) return std::nullopt;
  const BlockScaledView view = tensor.blocks(direction);
  if (view.rotated) return std::nullopt;
  const std::int64_t row = index / view.cols();
  const std::int64_t col = index % view.cols();
  const std::uint8_t code = view.code(row, col);
  const float scale = view.stored_scale(view.scale_index(row, col));
  const DecodedCode decoded = decode(view.layout.format, code);
  return DecodedElement{
      .value = decoded.value * scale, .tolerance = decoded.step * scale, .saturated = decoded.saturated};
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

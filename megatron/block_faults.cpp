#include "megatron/block_faults.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope::megatron {

namespace {

Tensor copied(const TensorView& view) {
  Tensor copy(view.dtype(), view.shape());
  if (copy.bytes() != 0) std::memcpy(copy.mutable_view().data(), view.data(), copy.bytes());
  return copy;
}

std::uint8_t encode(DType format, float value) {
  return format == DType::kE5M2 ? encode_fp8<DType::kE5M2>(value) : encode_fp8<DType::kE4M3>(value);
}

/// One direction's codes made again under smaller scales. values: the matrix, f32.
class Halved {
 public:
  Halved(const BlockScaledView& sound, const Tensor& values)
      : sound_(sound), values_(values), codes_(copied(sound.codes)), scales_(copied(sound.scales)) {
    for (std::int64_t i = 0; i < sound.blocks_down(); ++i) {
      for (std::int64_t j = 0; j < sound.blocks_across(); ++j) halve(i, j);
    }
  }
  [[nodiscard]] BlockScaledCodes take() && {
    return {.codes = std::move(codes_), .scales = std::move(scales_), .layout = sound_.layout};
  }

 private:
  template <class Action>
  void for_each_element(std::int64_t i, std::int64_t j, Action&& action) {
    const BlockLayout& layout = sound_.layout;
    const std::int64_t last_row = std::min((i + 1) * layout.block_rows, sound_.rows());
    const std::int64_t last_col = std::min((j + 1) * layout.block_cols, sound_.cols());
    for (std::int64_t row = i * layout.block_rows; row < last_row; ++row) {
      for (std::int64_t col = j * layout.block_cols; col < last_col; ++col) {
        action(row, col, values_.values<float>()[static_cast<std::size_t>(row * sound_.cols() + col)]);
      }
    }
  }

  void halve(std::int64_t i, std::int64_t j) {
    float amax = 0;
    for_each_element(i, j, [&](std::int64_t, std::int64_t, float x) {
      if (!std::isnan(x)) amax = std::max(amax, std::abs(x));
    });
    const float scale = sound_.scale(i, j);
    // Rounding up and down agree on a power of two; nothing is below the smallest scale.
    if (amax == 0 || std::isinf(amax) || amax >= scale * fp8_max(sound_.layout.format) ||
        scale <= 0x1p-127F) {
      return;
    }
    auto* const scale_bytes = static_cast<std::uint8_t*>(scales_.mutable_view().data());
    auto* const code_bytes = static_cast<std::uint8_t*>(codes_.mutable_view().data());
    const auto* const sound_bytes = static_cast<const std::uint8_t*>(sound_.scales.data());
    for_each_element(i, j, [&](std::int64_t row, std::int64_t col, float x) {
      const std::int64_t at = sound_.scale_index(row, col);
      scale_bytes[at] = static_cast<std::uint8_t>(sound_bytes[at] - 1);
      const std::int64_t index =
          sound_.layout.codes_transposed ? col * sound_.codes.cols() + row : row * sound_.codes.cols() + col;
      code_bytes[index] = encode(sound_.layout.format, x * (2 / scale));
    });
  }

  const BlockScaledView& sound_;
  const Tensor& values_;
  Tensor codes_;
  Tensor scales_;
};

std::shared_ptr<BlockScaledTensor> rounded_down(const TensorView& x, const QuantizedTensor& sound) {
  const auto* const blocks = dynamic_cast<const BlockScaledTensor*>(&sound);
  AMAXSCOPE_CHECK(blocks != nullptr && blocks->recipe() == RecipeKind::kMxfp8, ErrorCode::kUsage,
                  "fault scale_rounded_down: a tensor that is not quantized to mxfp8");
  Tensor values(DType::kF32, {x.rows(), x.cols()});
  convert(x.reshaped(values.shape()), values);
  const auto direction = [&](Direction of) {
    if (!blocks->usage().has(of))
      return BlockScaledCodes{.codes = {}, .scales = {}, .layout = blocks->layout(of)};
    const BlockScaledView view = blocks->blocks(of);
    return Halved(view, values).take();
  };
  return std::make_shared<BlockScaledTensor>(
      blocks->shape(), blocks->recipe(), direction(Direction::kRowwise), direction(Direction::kColumnwise));
}

}  // namespace

std::shared_ptr<QuantizedTensor> RoundedDownQuantizer::quantize(const TensorView& x, Usage usage,
                                                                const TensorMoment& moment) {
  std::shared_ptr<QuantizedTensor> sound = inner().quantize(x, usage, moment);
  if (due() == nullptr) return sound;
  return rounded_down(x, *sound);
}

void RoundedDownQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  inner().update(x, target, moment);
  if (due() != nullptr) dynamic_cast<BlockScaledTensor&>(target) = std::move(*rounded_down(x, target));
}

void FixedSeedQuantizer::strike() const {
  if (due() != nullptr) nvfp4_.set_calls(0);
}

std::shared_ptr<QuantizedTensor> FixedSeedQuantizer::quantize(const TensorView& x, Usage usage,
                                                              const TensorMoment& moment) {
  strike();
  return inner().quantize(x, usage, moment);
}

void FixedSeedQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  strike();
  inner().update(x, target, moment);
}

}  // namespace amaxscope::megatron

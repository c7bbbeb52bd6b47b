#include <algorithm>
#include <array>
#include <optional>

#include "kernels/amax.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_tile.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/nvfp4_tile.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

using cpu::nvfp4::Codes;
using cpu::nvfp4::Encoder;
using cpu::nvfp4::Group;
using cpu::nvfp4::Keys;
using cpu::nvfp4::kSize;
using cpu::nvfp4::Scales;
using cpu::nvfp4::Tile;
using cpu::nvfp4::Writer;

float* values_of(Tile& tile) { return tile.values.front().data(); }

/// Rows of tiles that one thread makes; action(first row, end).
template <class Action>
void over_bands(const TensorView& x, Action&& action) {
  const auto bands = static_cast<std::size_t>(x.rows()) / kSize;
  cpu::Pieces(x, bands).run([&](std::size_t piece, std::size_t first, std::size_t end) {
    action(piece, static_cast<std::int64_t>(first * kSize), static_cast<std::int64_t>(end * kSize));
  });
}

template <class T>
std::uint32_t rotated_amax(const TensorView& x) {
  const T* values = cpu::data_of<T>(x);
  const cpu::Nvfp4Loops& loops = *cpu::loops().nvfp4;
  std::array<std::uint32_t, cpu::kMaxPieces> largest{};
  over_bands(x, [&](std::size_t piece, std::int64_t first, std::int64_t end) {
    Tile tile;
    Keys keys;
    for (std::int64_t row = first; row < end; row += kNvfp4Block) {
      for (std::int64_t col = 0; col < x.cols(); col += kNvfp4Block) {
        tile.load(values + row * x.cols() + col, x.cols(), kSize, kSize);
        loops.rotate(values_of(tile), std::is_same_v<T, BF16>);
        loops.column_amaxes(values_of(tile), keys.data());
        largest[piece] = std::max(largest[piece], *std::ranges::max_element(keys));
      }
    }
  });
  return *std::ranges::max_element(largest);
}

/// Sixteen one-dimensional blocks: the rows of `rows`, the columns of its transpose.
void quantize_groups(const Encoder& encoder, const Writer& writer, bool four_over_six, const Tile& rows,
                     const Tile& columns, const Keys& amaxes, std::int64_t row, std::int64_t col) {
  Scales best = encoder.candidates(amaxes);
  if (four_over_six) {
    const Scales wider = encoder.wider(amaxes);
    const Group errors = encoder.errors(columns, best);
    const Group wider_errors = encoder.errors(columns, wider);
    for (std::size_t i = 0; i < kSize; ++i) {
      if (!(wider_errors[i] < errors[i])) continue;
      best.bytes[i] = wider.bytes[i];
      best.multipliers[i] = wider.multipliers[i];
    }
  }
  Codes codes;
  encoder.encode(rows, best, writer.block(row, col), writer.step(), codes);
  writer.write(row, col, codes, best);
}

/// Sum of the rows' errors, halves added to halves as the reference's threads do. columns: the tile,
/// transposed.
float error_of_block(const Encoder& encoder, const Tile& columns, const Scales& by) {
  Group errors = encoder.errors(columns, by);
  for (std::size_t half = kSize / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) errors[i] += errors[i + half];
  }
  return errors[0];
}

/// The same scale for all rows of a tile with this amax.
Scales best_of_block(const Encoder& encoder, bool four_over_six, const Tile& tile, std::uint32_t amax) {
  Keys amaxes;
  amaxes.fill(amax);
  const Scales first = encoder.candidates(amaxes);
  if (!four_over_six) return first;
  const Scales wider = encoder.wider(amaxes);
  Tile columns;
  cpu::loops().nvfp4->transpose(tile.values.front().data(), values_of(columns));
  return error_of_block(encoder, columns, wider) < error_of_block(encoder, columns, first) ? wider : first;
}

template <class T>
class Quantization {
 public:
  Quantization(const TensorView& x, const Nvfp4Cast& cast, const BlockOutputs& out)
      : loops_(*cpu::loops().nvfp4),
        cast_(cast),
        four_over_six_(cast.four_over_six != FourOverSix::kOff),
        blocks_of_row_(static_cast<std::uint64_t>(x.cols() / kNvfp4Block)),
        row_encoder_(cast, cast.rowwise_amax, false),
        column_encoder_(cast, cast.columnwise_amax, true) {
    if (out.rowwise) row_writer_.emplace(*out.rowwise);
    if (out.columnwise) column_writer_.emplace(*out.columnwise);
  }

  /// A tile of x at (row, col); it is changed.
  void add(Tile& tile, std::int64_t row, std::int64_t col) const {
    if (cast_.two_dimensional) return square(tile, row, col);
    Tile turned;
    Keys amaxes;
    if (row_writer_) {
      loops_.transpose(values_of(tile), values_of(turned));
      loops_.column_amaxes(values_of(turned), amaxes.data());
      quantize_groups(row_encoder_, *row_writer_, four_over_six_, tile, turned, amaxes, row, col);
    }
    if (!column_writer_) return;
    if (cast_.rotate_columnwise) loops_.rotate(values_of(tile), std::is_same_v<T, BF16>);
    loops_.column_amaxes(values_of(tile), amaxes.data());
    loops_.transpose(values_of(tile), values_of(turned));
    quantize_groups(column_encoder_, *column_writer_, four_over_six_, turned, tile, amaxes, col, row);
  }

 private:
  void square(Tile& tile, std::int64_t row, std::int64_t col) const {
    Keys amaxes;
    loops_.column_amaxes(values_of(tile), amaxes.data());
    const Scales best = best_of_block(row_encoder_, four_over_six_, tile, *std::ranges::max_element(amaxes));
    Codes codes;
    const std::uint64_t block =
        static_cast<std::uint64_t>(row) * blocks_of_row_ + static_cast<std::uint64_t>(col / kNvfp4Block);
    row_encoder_.encode(tile, best, block, blocks_of_row_, codes);
    if (row_writer_) row_writer_->write(row, col, codes, best);
    if (!column_writer_) return;
    Codes turned;
    for (std::size_t i = 0; i < kSize; ++i) {
      for (std::size_t j = 0; j < kSize; ++j) turned[i * kSize + j] = codes[j * kSize + i];
    }
    column_writer_->write(col, row, turned, best);
  }

  const cpu::Nvfp4Loops& loops_;
  const Nvfp4Cast& cast_;
  bool four_over_six_;
  std::uint64_t blocks_of_row_;
  Encoder row_encoder_;
  Encoder column_encoder_;
  std::optional<Writer> row_writer_;
  std::optional<Writer> column_writer_;
};

template <class T>
void quantize(const TensorView& x, const Nvfp4Cast& cast, const BlockOutputs& out) {
  const T* values = cpu::data_of<T>(x);
  const Quantization<T> quantization(x, cast, out);
  over_bands(x, [&](std::size_t, std::int64_t first, std::int64_t end) {
    Tile tile;
    for (std::int64_t row = first; row < end; row += kNvfp4Block) {
      for (std::int64_t col = 0; col < x.cols(); col += kNvfp4Block) {
        tile.load(values + row * x.cols() + col, x.cols(), kSize, kSize);
        quantization.add(tile, row, col);
      }
    }
  });
}

}  // namespace

void require_combination(std::string_view operation, const Nvfp4Cast& cast) {
  AMAXSCOPE_CHECK(!cast.two_dimensional || !cast.rotate_columnwise, ErrorCode::kUsage,
                  "{}: blocks of 16 x 16 are not rotated", operation);
  AMAXSCOPE_CHECK(cast.four_over_six == FourOverSix::kOff || (!cast.rotate_columnwise && !cast.stochastic),
                  ErrorCode::kUsage, "{}: four over six goes without rotation and stochastic rounding",
                  operation);
  AMAXSCOPE_CHECK(
      cast.scale_max == 448.0F || (cast.scale_max == 256.0F && cast.four_over_six != FourOverSix::kOff),
      ErrorCode::kUsage, "{}: a largest block scale of {}; allowed are 448 and, with four over six, 256",
      operation, cast.scale_max);
}

BlockLayout nvfp4_layout(bool columnwise, bool two_dimensional) {
  BlockLayout layout{.format = DType::kE2M1, .scale_format = DType::kE4M3};
  layout.scale_rows = columnwise ? kNvfp4Block : 1;
  layout.scale_cols = columnwise ? 1 : kNvfp4Block;
  layout.block_rows = two_dimensional ? kNvfp4Block : layout.scale_rows;
  layout.block_cols = two_dimensional ? kNvfp4Block : layout.scale_cols;
  layout.codes_transposed = columnwise;
  layout.scales_transposed = columnwise;
  layout.pad_rows = 128;
  layout.pad_cols = 4;
  return layout;
}

std::array<std::uint32_t, 2> nvfp4_amaxes(const TensorView& x, bool rowwise, bool columnwise, bool rotate) {
  constexpr std::string_view kOperation = "nvfp4_amaxes";
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_multiple(kOperation, x, kNvfp4Block);
  const std::uint32_t plain = rowwise || !rotate ? amax_bits(x) : 0U;
  std::uint32_t rotated = plain;
  if (rotate) {
    rotated = columnwise
                  ? cpu::with_compute_type(kOperation, "x", x,
                                           [&]<class T>(std::type_identity<T>) { return rotated_amax<T>(x); })
                  : 0U;
  }
  return {plain, rotated};
}

TensorScale nvfp4_tensor_scale(float amax, float scale_max) {
  return {.amax = amax, .factor = 1.0F / (kFp4Max * scale_max)};
}

void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_nvfp4";
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_multiple(kOperation, x, kNvfp4Block);
  require_combination(kOperation, cast);
  AMAXSCOPE_CHECK(!cast.two_dimensional || cast.rowwise_amax == cast.columnwise_amax, ErrorCode::kUsage,
                  "{}: two-dimensional blocks have one amax, not {} rowwise and {} columnwise", kOperation,
                  cast.rowwise_amax, cast.columnwise_amax);
  AMAXSCOPE_CHECK(out.rowwise || out.columnwise, ErrorCode::kUsage, "{}: no direction is wanted", kOperation);
  for (const bool columnwise : {false, true}) {
    const auto& output = columnwise ? out.columnwise : out.rowwise;
    if (output) {
      cpu::prepare_output(kOperation, *output, nvfp4_layout(columnwise, cast.two_dimensional), x.rows(),
                          x.cols());
    }
  }
  cpu::with_compute_type(kOperation, "x", x,
                         [&]<class T>(std::type_identity<T>) { quantize<T>(x, cast, out); });
}

void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "nvfp4_amaxes";
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->nvfp4_amaxes(x, rotate, out);
  AMAXSCOPE_CHECK(out.numel() == 2, ErrorCode::kTensor, "{}: out has shape {}, wanted two amaxes", kOperation,
                  to_string(out.shape()));
  const std::array<std::uint32_t, 2> amaxes = nvfp4_amaxes(x, true, true, rotate);
  std::ranges::copy(amaxes, out.values<std::uint32_t>().begin());
}

void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                    const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_nvfp4";
  if (DeviceKernels* device = device_kernels(kOperation, x))
    return device->quantize_nvfp4(x, cast, amaxes, out);
  AMAXSCOPE_CHECK(amaxes.numel() == 2, ErrorCode::kTensor, "{}: amaxes has shape {}, wanted two", kOperation,
                  to_string(amaxes.shape()));
  Nvfp4Cast with_amaxes = cast;
  with_amaxes.rowwise_amax = std::bit_cast<float>(amaxes.values<std::uint32_t>()[0]);
  with_amaxes.columnwise_amax = std::bit_cast<float>(amaxes.values<std::uint32_t>()[1]);
  quantize_nvfp4(x, with_amaxes, out);
}

}  // namespace amaxscope

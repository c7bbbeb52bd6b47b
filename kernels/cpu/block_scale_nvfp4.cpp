#include <cmath>

#include "kernels/amax.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/codec/nvfp4_scale.hpp"
#include "kernels/codec/philox.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_tile.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr auto kSize = static_cast<std::size_t>(kNvfp4Block);
static_assert(kSize == kHadamardSize);

using Group = std::array<float, kSize>;         ///< the elements of a one-dimensional block
using Codes = std::array<std::uint8_t, kSize>;  ///< one to a byte
using Tile = cpu::Tile<kSize>;

std::int32_t amax_key(const Group& group) {
  std::int32_t largest = 0;
  for (const float value : group) largest = std::max(largest, cpu::amax_key(value));
  return largest;
}

Group column_of(const Tile& tile, std::size_t col) {
  Group group;
  for (std::size_t row = 0; row < kSize; ++row) group[row] = tile.values[row][col];
  return group;
}

/// What T's columnwise codes are made of: bf16 stays bf16 on its way, as in the reference.
template <class T>
void rotate_group(Group& group) {
  rotate(group.data());
  if constexpr (std::is_same_v<T, BF16>) {
    for (float& value : group) value = to_float(to_bf16(value));
  }
}

template <class T>
std::int32_t rotated_amax(const TensorView& x) {
  const T* values = cpu::data_of<T>(x);
  std::int32_t largest = 0;
  Tile tile;
  cpu::for_each_block(x.rows(), x.cols(), kNvfp4Block, [&](std::int64_t row, std::int64_t col) {
    tile.load(values + row * x.cols() + col, x.cols(), kSize, kSize);
    for (std::size_t i = 0; i < kSize; ++i) {
      Group group = column_of(tile, i);
      rotate_group<T>(group);
      largest = std::max(largest, amax_key(group));
    }
  });
  return largest;
}

/// A block's scale and what its elements are multiplied by under it.
struct Candidate {
  std::uint8_t scale = 0;
  float multiplier = 0;
};

class Encoder {
 public:
  Encoder(const Nvfp4Cast& cast, float amax, bool columnwise)
      : cast_(cast),
        amax_(amax),
        columnwise_(columnwise ? 1U : 0U),
        level_(nvfp4_tensor_level(amax, cast.scale_max)) {}

  /// The one candidate for the largest value of a block, or the first of two.
  [[nodiscard]] Candidate candidate(float block_amax) const {
    if (cast_.four_over_six != FourOverSix::kOff) return with_scale(block_amax / kFp4Max * level_.encode);
    return with_scale(block_amax * level_.block_factor);
  }
  /// The other: its largest value becomes 4, not 6.
  [[nodiscard]] Candidate wider(float block_amax) const {
    return with_scale(block_amax / kFp4Max * level_.encode * 1.5F);
  }

  /// block: index in the order of the codes, for the random numbers.
  [[nodiscard]] Codes encode(const Group& group, const Candidate& by, std::uint64_t block) const {
    Codes codes;
    if (!cast_.stochastic) {
      for (std::size_t i = 0; i < kSize; ++i) codes[i] = encode_e2m1(group[i] * by.multiplier);
      return codes;
    }
    const PhiloxCounter words = draw(block);
    Codes random;
    for (std::size_t i = 0; i < kSize; ++i)
      random[i] = static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8));
    for (std::size_t i = 0; i < kSize; ++i) {
      codes[i] = encode_e2m1_stochastic(group[i] * by.multiplier, random[i]);
    }
    return codes;
  }

  /// Sum over the elements of what decoding under a candidate is off by.
  [[nodiscard]] float error(const Group& group, const Candidate& by) const {
    const float scale = decode_fp8<DType::kE4M3>(by.scale);
    const float denominator = kFp4Max * cast_.scale_max;
    float sum = 0;
    for (const float value : group) {
      const float decoded = decode_e2m1(encode_e2m1(value * by.multiplier)) * scale * amax_ / denominator;
      const float difference = decoded - value;
      sum +=
          cast_.four_over_six == FourOverSix::kSquaredError ? difference * difference : std::abs(difference);
    }
    return sum;
  }

 private:
  [[nodiscard]] Candidate with_scale(float value) const {
    const std::uint8_t scale = encode_block_scale(value);
    return {scale, nvfp4_encode_multiplier(scale, level_)};
  }
  [[nodiscard]] PhiloxCounter draw(std::uint64_t block) const {
    return rounding_draw(cast_.stochastic->key, cast_.stochastic->call, columnwise_, block);
  }

  const Nvfp4Cast& cast_;
  float amax_;
  std::uint32_t columnwise_;
  Nvfp4TensorLevel level_;
};

/// Writes blocks where a layout has them: the block's codes are row `row` of the stored codes from column
/// `col` on, and its scale is at (row, col / 16) of the stored scales.
class Writer {
 public:
  explicit Writer(const BlockOutput& out)
      : codes_(static_cast<std::uint8_t*>(out.codes.data())),
        scales_(static_cast<std::uint8_t*>(out.scales.data())),
        cols_(out.codes.cols()),
        scale_stride_(out.scales.cols()) {}

  [[nodiscard]] std::uint64_t block(std::int64_t row, std::int64_t col) const {
    return static_cast<std::uint64_t>((row * cols_ + col) / kNvfp4Block);
  }
  void write(std::int64_t row, std::int64_t col, const Codes& codes, std::uint8_t scale) const {
    std::uint8_t* out = codes_ + (row * cols_ + col) / 2;
    for (std::size_t i = 0; i < kSize / 2; ++i) out[i] = pack_e2m1(codes[2 * i], codes[2 * i + 1]);
    scales_[row * scale_stride_ + col / kNvfp4Block] = scale;
  }

 private:
  std::uint8_t* codes_;
  std::uint8_t* scales_;
  std::int64_t cols_;
  std::int64_t scale_stride_;
};

/// Rows of codes and a scale for each: 16 one-dimensional blocks, or one of 16 x 16.
void quantize_groups(const Encoder& encoder, const Writer& writer, bool four_over_six,
                     const std::array<Group, kSize>& groups, std::int64_t row, std::int64_t col) {
  for (std::size_t i = 0; i < kSize; ++i) {
    const float amax = std::bit_cast<float>(amax_key(groups[i]));
    Candidate best = encoder.candidate(amax);
    if (four_over_six) {
      const Candidate wider = encoder.wider(amax);
      if (encoder.error(groups[i], wider) < encoder.error(groups[i], best)) best = wider;
    }
    const std::int64_t at = row + static_cast<std::int64_t>(i);
    writer.write(at, col, encoder.encode(groups[i], best, writer.block(at, col)), best.scale);
  }
}

/// Sum of the rows' errors, halves added to halves as the reference's threads do.
float error_of_block(const Encoder& encoder, const std::array<Group, kSize>& groups, const Candidate& by) {
  Group errors;
  for (std::size_t i = 0; i < kSize; ++i) errors[i] = encoder.error(groups[i], by);
  for (std::size_t half = kSize / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) errors[i] += errors[i + half];
  }
  return errors[0];
}

Candidate best_of_block(const Encoder& encoder, bool four_over_six, const std::array<Group, kSize>& groups) {
  std::int32_t key = 0;
  for (const Group& group : groups) key = std::max(key, amax_key(group));
  const float amax = std::bit_cast<float>(key);
  const Candidate first = encoder.candidate(amax);
  if (!four_over_six) return first;
  const Candidate wider = encoder.wider(amax);
  return error_of_block(encoder, groups, wider) < error_of_block(encoder, groups, first) ? wider : first;
}

template <class T>
void quantize(const TensorView& x, const Nvfp4Cast& cast, const BlockOutputs& out) {
  const T* values = cpu::data_of<T>(x);
  const bool four_over_six = cast.four_over_six != FourOverSix::kOff;
  const Encoder row_encoder(cast, cast.rowwise_amax, false);
  const Encoder column_encoder(cast, cast.columnwise_amax, true);
  std::optional<Writer> row_writer;
  std::optional<Writer> column_writer;
  if (out.rowwise) row_writer.emplace(*out.rowwise);
  if (out.columnwise) column_writer.emplace(*out.columnwise);
  Tile tile;
  std::array<Group, kSize> columns;
  std::array<Codes, kSize> codes;
  cpu::for_each_block(x.rows(), x.cols(), kNvfp4Block, [&](std::int64_t row, std::int64_t col) {
    tile.load(values + row * x.cols() + col, x.cols(), kSize, kSize);
    if (!cast.two_dimensional) {
      if (row_writer) quantize_groups(row_encoder, *row_writer, four_over_six, tile.values, row, col);
      if (!column_writer) return;
      for (std::size_t i = 0; i < kSize; ++i) {
        columns[i] = column_of(tile, i);
        if (cast.rotate_columnwise) rotate_group<T>(columns[i]);
      }
      quantize_groups(column_encoder, *column_writer, four_over_six, columns, col, row);
      return;
    }
    const Candidate best = best_of_block(row_encoder, four_over_six, tile.values);
    const auto blocks_of_row = static_cast<std::uint64_t>(x.cols() / kNvfp4Block);
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::int64_t at = row + static_cast<std::int64_t>(i);
      const std::uint64_t block =
          static_cast<std::uint64_t>(at) * blocks_of_row + static_cast<std::uint64_t>(col / kNvfp4Block);
      codes[i] = row_encoder.encode(tile.values[i], best, block);
      if (row_writer) row_writer->write(at, col, codes[i], best.scale);
    }
    if (!column_writer) return;
    for (std::size_t i = 0; i < kSize; ++i) {
      Codes turned;
      for (std::size_t j = 0; j < kSize; ++j) turned[j] = codes[j][i];
      column_writer->write(col + static_cast<std::int64_t>(i), row, turned, best.scale);
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
    rotated = columnwise ? cpu::with_compute_type(kOperation, "x", x,
                                                  [&]<class T>(std::type_identity<T>) {
                                                    return static_cast<std::uint32_t>(rotated_amax<T>(x));
                                                  })
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

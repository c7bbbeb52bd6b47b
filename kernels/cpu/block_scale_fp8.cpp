#include "kernels/block_scale.hpp"

#include <limits>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_tile.hpp"

namespace amaxscope {

namespace {

template <std::size_t kSize>
using Factors = std::array<float, kSize>;

/// codes[row][col] = fp8(values[row][col] * factor of the row) for the part of a tile that is in the matrix.
template <DType kFormat, std::size_t kSize>
void encode_by_row(const cpu::Tile<kSize>& tile, const Factors<kSize>& factors, std::size_t rows,
                   std::size_t cols, std::uint8_t* codes, std::int64_t stride) {
  for (std::size_t row = 0; row < rows; ++row) {
    std::uint8_t* out = codes + static_cast<std::int64_t>(row) * stride;
    const float factor = factors[row];
    for (std::size_t col = 0; col < cols; ++col)
      out[col] = encode_fp8<kFormat>(tile.values[row][col] * factor);
  }
}
/// The same with a factor for each column.
template <DType kFormat, std::size_t kSize>
void encode_by_column(const cpu::Tile<kSize>& tile, const Factors<kSize>& factors, std::size_t rows,
                      std::size_t cols, std::uint8_t* codes, std::int64_t stride) {
  for (std::size_t row = 0; row < rows; ++row) {
    std::uint8_t* out = codes + static_cast<std::int64_t>(row) * stride;
    for (std::size_t col = 0; col < cols; ++col) {
      out[col] = encode_fp8<kFormat>(tile.values[row][col] * factors[col]);
    }
  }
}

DType format_of(std::string_view operation, const BlockOutputs& out) {
  AMAXSCOPE_CHECK(out.rowwise || out.columnwise, ErrorCode::kUsage, "{}: no direction is wanted", operation);
  const DType format = (out.rowwise ? out.rowwise : out.columnwise)->codes.dtype();
  AMAXSCOPE_CHECK(!out.columnwise || out.columnwise->codes.dtype() == format, ErrorCode::kTensor,
                  "{}: rowwise codes are {} and columnwise {}", operation, to_string(format),
                  to_string(out.columnwise->codes.dtype()));
  return format;
}

// --- MXFP8

constexpr auto kMx = static_cast<std::size_t>(kMxfp8Block);

/// Scale bytes of 32 blocks and what their elements are multiplied by.
template <DType kFormat>
Factors<kMx> mx_scales(const std::array<std::int32_t, kMx>& amaxes, std::array<std::uint8_t, kMx>& bytes) {
  constexpr float kReciprocal = 1.0F / fp8_max(kFormat);
  Factors<kMx> factors;
  for (std::size_t i = 0; i < kMx; ++i) {
    bytes[i] = encode_e8m0(std::bit_cast<float>(amaxes[i]) * kReciprocal);
    factors[i] = e8m0_encode_multiplier(bytes[i]);
  }
  return factors;
}

template <DType kFormat, class T>
void quantize_mx(const TensorView& x, bool two_dimensional, const BlockOutputs& out) {
  const std::int64_t cols = x.cols();
  const T* values = cpu::data_of<T>(x);
  cpu::Tile<kMx> tile;
  std::array<std::uint8_t, kMx> bytes;
  cpu::for_each_block(x.rows(), cols, kMxfp8Block, [&](std::int64_t row, std::int64_t col) {
    const std::int64_t first = row * cols + col;
    tile.load(values + first, cols, kMx, kMx);
    auto row_amaxes = out.rowwise || two_dimensional ? tile.row_amaxes() : std::array<std::int32_t, kMx>{};
    if (two_dimensional) cpu::make_common(row_amaxes);
    if (out.rowwise) {
      const Factors<kMx> factors = mx_scales<kFormat>(row_amaxes, bytes);
      const std::int64_t stride = out.rowwise->scales.cols();
      auto* scales = cpu::data_of<std::uint8_t>(out.rowwise->scales) + row * stride + col / kMxfp8Block;
      for (std::size_t i = 0; i < kMx; ++i) scales[static_cast<std::int64_t>(i) * stride] = bytes[i];
      encode_by_row<kFormat>(tile, factors, kMx, kMx, cpu::data_of<std::uint8_t>(out.rowwise->codes) + first,
                             cols);
    }
    if (out.columnwise) {
      const Factors<kMx> factors =
          mx_scales<kFormat>(two_dimensional ? row_amaxes : tile.column_amaxes(), bytes);
      auto* scales = cpu::data_of<std::uint8_t>(out.columnwise->scales) +
                     row / kMxfp8Block * out.columnwise->scales.cols() + col;
      std::ranges::copy(bytes, scales);
      encode_by_column<kFormat>(tile, factors, kMx, kMx,
                                cpu::data_of<std::uint8_t>(out.columnwise->codes) + first, cols);
    }
  });
}

// --- FP8 blocks of 128

constexpr auto kBlock = static_cast<std::size_t>(kFp8Block);

template <class T>
constexpr float kLargest = kFloatMax;
template <>
constexpr float kLargest<F16> = 65504.0F;
template <>
constexpr float kLargest<BF16> = std::bit_cast<float>(0x7F7F0000U);

Factors<kBlock> block_scales(const std::array<std::int32_t, kBlock>& amaxes, const ScaleOptions& options) {
  Factors<kBlock> scales;
  for (std::size_t i = 0; i < kBlock; ++i) {
    scales[i] = scale_from_amax(static_cast<std::uint32_t>(amaxes[i]), options).scale;
  }
  return scales;
}

template <DType kFormat, class T>
class BlockQuantization {
 public:
  BlockQuantization(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                    const BlockOutputs& out)
      : x_(x),
        options_{.max_value = fp8_max(kFormat),
                 .power_of_two = options.power_of_two,
                 .epsilon = options.epsilon,
                 .value_for_infinity = kLargest<T>},
        two_dimensional_(two_dimensional),
        out_(out) {}

  void run() {
    cpu::for_each_block(x_.rows(), x_.cols(), kFp8Block, [&](std::int64_t row, std::int64_t col) {
      row_ = row;
      col_ = col;
      rows_ = static_cast<std::size_t>(std::min(kFp8Block, x_.rows() - row));
      cols_ = static_cast<std::size_t>(std::min(kFp8Block, x_.cols() - col));
      tile_.load(cpu::data_of<T>(x_) + row * x_.cols() + col, x_.cols(), rows_, cols_);
      if (two_dimensional_) {
        block();
      } else {
        if (out_.rowwise) rowwise();
        if (out_.columnwise) columnwise();
      }
    });
  }

 private:
  void rowwise() {
    const Factors<kBlock> scales = block_scales(tile_.row_amaxes(), options_);
    float* stored =
        cpu::data_of<float>(out_.rowwise->scales) + col_ / kFp8Block * out_.rowwise->scales.cols() + row_;
    for (std::size_t i = 0; i < rows_; ++i) stored[i] = scale_inverse(scales[i]);
    write_rowwise(scales);
  }
  void columnwise() {
    const Factors<kBlock> scales = block_scales(tile_.column_amaxes(), options_);
    float* stored = cpu::data_of<float>(out_.columnwise->scales) +
                    row_ / kFp8Block * out_.columnwise->scales.cols() + col_;
    for (std::size_t i = 0; i < cols_; ++i) stored[i] = scale_inverse(scales[i]);
    write_columnwise(scales);
  }
  void block() {
    auto amaxes = tile_.row_amaxes();
    cpu::make_common(amaxes);
    Factors<kBlock> scales;
    scales.fill(scale_from_amax(static_cast<std::uint32_t>(amaxes[0]), options_).scale);
    const float inverse = scale_inverse(scales[0]);
    const std::int64_t i = row_ / kFp8Block;
    const std::int64_t j = col_ / kFp8Block;
    if (out_.rowwise) {
      cpu::data_of<float>(out_.rowwise->scales)[i * out_.rowwise->scales.cols() + j] = inverse;
      write_rowwise(scales);
    }
    if (out_.columnwise) {
      cpu::data_of<float>(out_.columnwise->scales)[j * out_.columnwise->scales.cols() + i] = inverse;
      write_columnwise(scales);
    }
  }
  void write_rowwise(const Factors<kBlock>& scales) {
    encode_by_row<kFormat>(tile_, scales, rows_, cols_,
                           cpu::data_of<std::uint8_t>(out_.rowwise->codes) + row_ * x_.cols() + col_,
                           x_.cols());
  }
  void write_columnwise(const Factors<kBlock>& scales) {
    constexpr auto kStride = static_cast<std::int64_t>(kBlock);
    encode_by_column<kFormat>(tile_, scales, rows_, cols_, codes_.data(), kStride);
    auto* out = cpu::data_of<std::uint8_t>(out_.columnwise->codes) + col_ * x_.rows() + row_;
    for (std::size_t col = 0; col < cols_; ++col) {
      std::uint8_t* target = out + static_cast<std::int64_t>(col) * x_.rows();
      for (std::size_t row = 0; row < rows_; ++row) target[row] = codes_[row * kBlock + col];
    }
  }

  const TensorView& x_;
  ScaleOptions options_;
  bool two_dimensional_;
  const BlockOutputs& out_;
  std::int64_t row_ = 0, col_ = 0;   // of the tile
  std::size_t rows_ = 0, cols_ = 0;  // of it that are in the matrix
  cpu::Tile<kBlock> tile_;
  std::array<std::uint8_t, kBlock * kBlock> codes_;
};

}  // namespace

BlockLayout mxfp8_layout(DType format, bool columnwise, bool two_dimensional) {
  BlockLayout layout{.format = format, .scale_format = DType::kE8M0};
  layout.scale_rows = columnwise ? kMxfp8Block : 1;
  layout.scale_cols = columnwise ? 1 : kMxfp8Block;
  layout.block_rows = two_dimensional ? kMxfp8Block : layout.scale_rows;
  layout.block_cols = two_dimensional ? kMxfp8Block : layout.scale_cols;
  layout.pad_rows = columnwise ? 4 : 128;
  layout.pad_cols = columnwise ? 128 : 4;
  return layout;
}

void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_mxfp8";
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_multiple(kOperation, x, kMxfp8Block);
  const DType format = format_of(kOperation, out);
  for (const bool columnwise : {false, true}) {
    const auto& output = columnwise ? out.columnwise : out.rowwise;
    if (output) {
      cpu::prepare_output(kOperation, *output, mxfp8_layout(format, columnwise, two_dimensional), x.rows(),
                          x.cols());
    }
  }
  cpu::with_fp8_format(kOperation, "codes", format,
                       [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
                         cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
                           quantize_mx<kFormat, T>(x, two_dimensional, out);
                         });
                       });
}

BlockLayout fp8_block_layout(DType format, bool columnwise, bool two_dimensional) {
  BlockLayout layout{.format = format, .scale_format = DType::kF32, .codes_transposed = columnwise};
  layout.block_rows = two_dimensional || columnwise ? kFp8Block : 1;
  layout.block_cols = two_dimensional || !columnwise ? kFp8Block : 1;
  layout.scale_rows = layout.block_rows;
  layout.scale_cols = layout.block_cols;
  // One-dimensional scales are stored with the long side along a row, two-dimensional ones as the codes are.
  layout.scales_transposed = two_dimensional == columnwise;
  layout.pad_cols = 4;
  return layout;
}

void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                         const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_fp8_blocks";
  cpu::require_contiguous(kOperation, "x", x);
  const DType format = format_of(kOperation, out);
  for (const bool columnwise : {false, true}) {
    const auto& output = columnwise ? out.columnwise : out.rowwise;
    if (output) {
      cpu::prepare_output(kOperation, *output, fp8_block_layout(format, columnwise, two_dimensional),
                          x.rows(), x.cols());
    }
  }
  cpu::with_fp8_format(kOperation, "codes", format,
                       [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
                         cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
                           BlockQuantization<kFormat, T>(x, options, two_dimensional, out).run();
                         });
                       });
}

}  // namespace amaxscope

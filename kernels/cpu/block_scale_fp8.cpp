#include <algorithm>
#include <array>
#include <bit>

#include "kernels/block_scale.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_tile.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr auto kBlock = static_cast<std::size_t>(kFp8Block);

template <class T>
constexpr float kLargest = kFloatMax;
template <>
constexpr float kLargest<F16> = 65504.0F;
template <>
constexpr float kLargest<BF16> = std::bit_cast<float>(0x7F7F0000U);

template <class T>
class BlockQuantization {
 public:
  BlockQuantization(const TensorView& x, DType format, const Fp8BlockOptions& options, bool two_dimensional,
                    const BlockOutputs& out)
      : values_(cpu::data_of<T>(x)),
        rows_(static_cast<std::size_t>(x.rows())),
        cols_(static_cast<std::size_t>(x.cols())),
        options_{.max_value = fp8_max(format),
                 .power_of_two = options.power_of_two,
                 .epsilon = options.epsilon,
                 .value_for_infinity = kLargest<T>},
        two_dimensional_(two_dimensional),
        loops_(cpu::loops()),
        amaxes_(loops_.of<T>()),
        format_(amaxes_.format(format)),
        out_(out) {}

  /// The bands of 128 rows from first to end.
  void run(std::size_t first, std::size_t end) {
    for (row_ = first * kBlock; row_ < std::min(end * kBlock, rows_); row_ += kBlock) {
      height_ = std::min(kBlock, rows_ - row_);
      if (out_.rowwise && !two_dimensional_) rowwise();
      if (!out_.columnwise && !two_dimensional_) continue;
      for (col_ = 0; col_ < cols_; col_ += kBlock) {
        width_ = std::min(kBlock, cols_ - col_);
        if (two_dimensional_) {
          block();
        } else {
          columnwise();
        }
      }
    }
  }

 private:
  [[nodiscard]] const T* row_of_block(std::size_t i) const { return values_ + (row_ + i) * cols_ + col_; }
  [[nodiscard]] float scale_of(std::uint32_t amax_bits) const {
    return scale_from_amax(amax_bits, options_).scale;
  }

  /// Whole rows of the band, as memory has them.
  void rowwise() {
    auto* stored = cpu::data_of<float>(out_.rowwise->scales);
    const auto stride = static_cast<std::size_t>(out_.rowwise->scales.cols());
    auto* codes = cpu::data_of<std::uint8_t>(out_.rowwise->codes);
    for (std::size_t row = row_; row < row_ + height_; ++row) {
      for (std::size_t col = 0; col < cols_; col += kBlock) {
        const std::size_t at = row * cols_ + col;
        const std::size_t width = std::min(kBlock, cols_ - col);
        const float scale = scale_of(amaxes_.amax(values_ + at, width));
        stored[col / kBlock * stride + row] = scale_inverse(scale);
        format_.encode(values_ + at, width, scale, codes + at, cpu::Store::kCached);
      }
    }
  }
  void columnwise() {
    column_amaxes();
    float* stored = cpu::data_of<float>(out_.columnwise->scales) +
                    row_ / kBlock * static_cast<std::size_t>(out_.columnwise->scales.cols()) + col_;
    for (std::size_t i = 0; i < width_; ++i) {
      scales_[i] = scale_of(keys_[i]);
      stored[i] = scale_inverse(scales_[i]);
    }
    for (std::size_t i = 0; i < height_; ++i) {
      format_.encode_scaled(row_of_block(i), width_, scales_.data(), codes_.data() + i * kStride);
    }
    write_transposed();
  }
  void block() {
    column_amaxes();
    const float scale = scale_of(*std::max_element(keys_.begin(), keys_.end()));
    const float inverse = scale_inverse(scale);
    const std::size_t down = row_ / kBlock;
    const std::size_t across = col_ / kBlock;
    for (std::size_t i = 0; i < height_; ++i) {
      format_.encode(row_of_block(i), width_, scale, codes_.data() + i * kStride, cpu::Store::kCached);
    }
    if (out_.rowwise) {
      const auto stride = static_cast<std::size_t>(out_.rowwise->scales.cols());
      cpu::data_of<float>(out_.rowwise->scales)[down * stride + across] = inverse;
      auto* codes = cpu::data_of<std::uint8_t>(out_.rowwise->codes);
      for (std::size_t i = 0; i < height_; ++i) {
        std::copy_n(codes_.data() + i * kStride, width_, codes + (row_ + i) * cols_ + col_);
      }
    }
    if (out_.columnwise) {
      const auto stride = static_cast<std::size_t>(out_.columnwise->scales.cols());
      cpu::data_of<float>(out_.columnwise->scales)[across * stride + down] = inverse;
      write_transposed();
    }
  }
  void column_amaxes() {
    keys_.fill(0);
    for (std::size_t i = 0; i < height_; ++i) amaxes_.column_amax(row_of_block(i), width_, keys_.data());
  }
  void write_transposed() const {
    loops_.transpose(codes_.data(), kStride, height_, width_,
                     cpu::data_of<std::uint8_t>(out_.columnwise->codes) + col_ * rows_ + row_, rows_,
                     cpu::Store::kCached);
  }

  const T* values_;
  std::size_t rows_, cols_;
  ScaleOptions options_;
  bool two_dimensional_;
  const cpu::Loops& loops_;
  const cpu::ElementLoops<T>& amaxes_;
  const cpu::FormatLoops<T>& format_;
  const BlockOutputs& out_;
  std::size_t row_ = 0, col_ = 0;       // of the block
  std::size_t height_ = 0, width_ = 0;  // of it that are in the matrix
  /// Further apart than a power of two, or the rows would share the sets of the cache.
  static constexpr std::size_t kStride = kBlock + 64;
  std::array<std::uint32_t, kBlock> keys_;
  std::array<float, kBlock> scales_;
  alignas(64) std::array<std::uint8_t, kBlock * kStride> codes_;
};

}  // namespace

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
  if (DeviceKernels* device = device_kernels(kOperation, x))
    return device->quantize_fp8_blocks(x, options, two_dimensional, out);
  cpu::require_contiguous(kOperation, "x", x);
  const DType format = cpu::format_of(kOperation, out);
  for (const bool columnwise : {false, true}) {
    const auto& output = columnwise ? out.columnwise : out.rowwise;
    if (output) {
      cpu::prepare_output(kOperation, *output, fp8_block_layout(format, columnwise, two_dimensional),
                          x.rows(), x.cols());
    }
  }
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: codes is {}; allowed are e4m3 and e5m2",
                  kOperation, to_string(format));
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto bands = static_cast<std::size_t>((x.rows() + kFp8Block - 1) / kFp8Block);
    cpu::Pieces(x, bands).run([&](std::size_t, std::size_t first, std::size_t end) {
      BlockQuantization<T>(x, format, options, two_dimensional, out).run(first, end);
    });
  });
}

}  // namespace amaxscope

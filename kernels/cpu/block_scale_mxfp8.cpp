#include <algorithm>
#include <array>
#include <bit>

#include "kernels/block_scale.hpp"
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_tile.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr auto kMx = static_cast<std::size_t>(kMxfp8Block);
/// Columns of 32 rows that are read once for both directions: 32 KiB of fp32.
constexpr std::size_t kStrip = 256;

template <class T>
class MxQuantization {
 public:
  MxQuantization(const TensorView& x, DType format, bool two_dimensional, const BlockOutputs& out)
      : values_(cpu::data_of<T>(x)),
        cols_(static_cast<std::size_t>(x.cols())),
        loops_(cpu::loops().of<T>()),
        format_(loops_.format(format)),
        reciprocal_(1.0F / fp8_max(format)),
        two_dimensional_(two_dimensional),
        out_(out) {}

  /// The rows from first to end: multiples of 32.
  void run(std::size_t first, std::size_t end) {
    if (!two_dimensional_ && !out_.columnwise) {  // whole rows, as memory has them
      for (std::size_t row = first; row < end; row += kMx) rowwise(row, 0, cols_);
      return;
    }
    for (std::size_t row = first; row < end; row += kMx) {
      for (std::size_t col = 0; col < cols_; col += kStrip) {
        const std::size_t width = std::min(kStrip, cols_ - col);
        if (two_dimensional_) {
          blocks(row, col, width);
          continue;
        }
        if (out_.rowwise) rowwise(row, col, width);
        if (out_.columnwise) columnwise(row, col, width);
      }
    }
  }

 private:
  void rowwise(std::size_t first, std::size_t col, std::size_t width) {
    const auto stride = static_cast<std::size_t>(out_.rowwise->scales.cols());
    auto* codes = cpu::data_of<std::uint8_t>(out_.rowwise->codes);
    auto* scales = cpu::data_of<std::uint8_t>(out_.rowwise->scales);
    for (std::size_t row = first; row < first + kMx; ++row) {
      const std::size_t at = row * cols_ + col;
      format_.encode_mx(values_ + at, width / kMx, codes + at, scales + row * stride + col / kMx);
    }
  }
  void columnwise(std::size_t first, std::size_t col, std::size_t width) {
    column_amaxes(first, col, width);
    write_columnwise(first, col, width);
  }
  /// One scale for 32 x 32 elements, stored for each of their rows or columns.
  void blocks(std::size_t first, std::size_t col, std::size_t width) {
    column_amaxes(first, col, width);
    for (std::size_t i = 0; i < width; i += kMx) {
      const auto block = keys_.begin() + static_cast<std::ptrdiff_t>(i);
      std::fill_n(block, kMx, *std::max_element(block, block + kMx));
    }
    if (out_.columnwise) write_columnwise(first, col, width);
    if (!out_.rowwise) return;
    make_factors(width);
    const auto stride = static_cast<std::size_t>(out_.rowwise->scales.cols());
    auto* scales = cpu::data_of<std::uint8_t>(out_.rowwise->scales);
    for (std::size_t row = first; row < first + kMx; ++row) {
      for (std::size_t i = 0; i < width; i += kMx) scales[row * stride + (col + i) / kMx] = bytes_[i];
    }
    encode(first, col, width, cpu::data_of<std::uint8_t>(out_.rowwise->codes));
  }

  void column_amaxes(std::size_t first, std::size_t col, std::size_t width) {
    std::fill_n(keys_.begin(), width, 0U);
    for (std::size_t row = first; row < first + kMx; ++row) {
      loops_.column_amax(values_ + row * cols_ + col, width, keys_.data());
    }
  }
  /// Scale bytes of columns and what their elements are multiplied by.
  void make_factors(std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) {
      bytes_[i] = encode_e8m0(std::bit_cast<float>(keys_[i]) * reciprocal_);
      factors_[i] = e8m0_encode_multiplier(bytes_[i]);
    }
  }
  void write_columnwise(std::size_t first, std::size_t col, std::size_t width) {
    make_factors(width);
    const auto stride = static_cast<std::size_t>(out_.columnwise->scales.cols());
    std::copy_n(bytes_.begin(), width,
                cpu::data_of<std::uint8_t>(out_.columnwise->scales) + first / kMx * stride + col);
    encode(first, col, width, cpu::data_of<std::uint8_t>(out_.columnwise->codes));
  }
  void encode(std::size_t first, std::size_t col, std::size_t width, std::uint8_t* codes) const {
    for (std::size_t row = first; row < first + kMx; ++row) {
      const std::size_t at = row * cols_ + col;
      format_.encode_scaled(values_ + at, width, factors_.data(), codes + at);
    }
  }

  const T* values_;
  std::size_t cols_;
  const cpu::ElementLoops<T>& loops_;
  const cpu::FormatLoops<T>& format_;
  float reciprocal_;
  bool two_dimensional_;
  const BlockOutputs& out_;
  std::array<std::uint32_t, kStrip> keys_;
  std::array<std::uint8_t, kStrip> bytes_;
  std::array<float, kStrip> factors_;
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
  if (DeviceKernels* device = device_kernels(kOperation, x))
    return device->quantize_mxfp8(x, two_dimensional, out);
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_multiple(kOperation, x, kMxfp8Block);
  const DType format = cpu::format_of(kOperation, out);
  for (const bool columnwise : {false, true}) {
    const auto& output = columnwise ? out.columnwise : out.rowwise;
    if (output) {
      cpu::prepare_output(kOperation, *output, mxfp8_layout(format, columnwise, two_dimensional), x.rows(),
                          x.cols());
    }
  }
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: codes is {}; allowed are e4m3 and e5m2",
                  kOperation, to_string(format));
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto bands = static_cast<std::size_t>(x.rows()) / kMx;
    cpu::Pieces(x, bands).run([&](std::size_t, std::size_t first, std::size_t end) {
      MxQuantization<T>(x, format, two_dimensional, out).run(first * kMx, end * kMx);
    });
  });
}

}  // namespace amaxscope

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/quantization_error.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "quantization_error";

constexpr float kInf = std::numeric_limits<float>::infinity();
/// Elements that are looked at together; they stay in L1.
constexpr std::size_t kStretch = 256;
using Values = std::array<float, kStretch>;

/// The sums of one block, whose elements come in their order.
class BlockSums {
 public:
  BlockSums(float scale, const CodeGrid& grid)
      : scale_(scale),
        limit_(grid.max * scale),
        saturates_from_(grid.saturates_from),
        has_scale_(scale > 0.0F) {}

  /// q: what the codes stand for. The counts are apart from the sums so that the compiler vectorizes them;
  /// what is left out adds 0 to the sums, which changes no bit of them.
  void add(const Values& x, const Values& q, std::size_t count) {
    std::array<double, kStretch> original;
    std::array<double, kStretch> decoded;
    std::uint32_t nan = 0;
    std::uint32_t nonzero = 0;
    std::uint32_t compared = 0;
    std::uint32_t underflows = 0;
    std::uint32_t overflows = 0;
    std::uint32_t saturated = 0;
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float magnitude = std::abs(x[i]);
      const bool valid = (magnitude < kInf) & (std::abs(q[i]) < kInf);
      const float kept = valid ? x[i] : 0.0F;
      const float kept_q = valid ? q[i] : 0.0F;
      nan += magnitude != magnitude ? 1U : 0U;
      nonzero += magnitude > 0.0F ? 1U : 0U;
      compared += valid ? 1U : 0U;
      underflows += is_flushed(magnitude, q[i]) ? 1U : 0U;
      saturated += is_saturated(magnitude) ? 1U : 0U;
      overflows += has_scale_ & (magnitude > limit_) ? 1U : 0U;
      // In fp32 as good as in double: where the difference of two fp32 is not exact in double, both round to
      // the larger of them.
      largest = std::max(largest, std::bit_cast<std::int32_t>(std::abs(kept - kept_q)));
      original[i] = static_cast<double>(kept);
      decoded[i] = static_cast<double>(kept_q);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const double error = original[i] - decoded[i];
      sums_.error_squares += error * error;
      sums_.signal_squares += original[i] * original[i];
      sums_.quantized_squares += decoded[i] * decoded[i];
      sums_.product += original[i] * decoded[i];
    }
    if (underflows + saturated != 0) {
      for (std::size_t i = 0; i < count; ++i) {
        const double square = original[i] * original[i];
        if (is_saturated(std::abs(x[i]))) sums_.saturated_squares += square;
        if (is_flushed(std::abs(x[i]), q[i])) sums_.flushed_squares += square;
      }
    }
    sums_.numel += count;
    sums_.nan += nan;
    sums_.compared += compared;
    sums_.underflows += underflows;
    sums_.overflows += overflows;
    sums_.saturated += saturated;
    sums_.max_error = std::max(sums_.max_error, std::bit_cast<float>(largest));
    empty_ = empty_ && nonzero == 0;
  }

  void add_to(BlockQuantizationError& result, WorstBlock& worst) const {
    result.elements += sums_;
    ++result.blocks;
    result.zero_blocks += empty_ ? 1U : 0U;
    result.saturated_blocks += sums_.saturated > 0 ? 1U : 0U;
    result.flushed_blocks += sums_.underflows > 0 ? 1U : 0U;
    if (!empty_ && has_scale_ && std::isfinite(scale_)) {
      result.scale_min = std::min(result.scale_min, scale_);
      result.scale_max = std::max(result.scale_max, scale_);
    }
    worst.error_squares = sums_.error_squares;
  }

 private:
  [[nodiscard]] bool is_flushed(float magnitude, float q) const {
    return (magnitude > 0.0F) & ((q == 0.0F) | (scale_ == 0.0F));
  }
  [[nodiscard]] bool is_saturated(float magnitude) const {
    return has_scale_ & (magnitude / scale_ >= saturates_from_);
  }

  float scale_, limit_, saturates_from_;
  bool has_scale_;
  bool empty_ = true;  ///< of anything but zeros and NaN
  QuantizationError sums_;
};

/// Keeps the largest, in order; of equals the first.
void enter(std::array<WorstBlock, kWorstBlocks>& list, const WorstBlock& block) {
  if (block.error_squares <= list.back().error_squares) return;
  const auto place = std::ranges::upper_bound(list, block.error_squares, std::greater<>{},
                                              [](const WorstBlock& b) { return b.error_squares; });
  std::move_backward(place, list.end() - 1, list.end());
  *place = block;
}

}  // namespace

BlockQuantizationError::BlockQuantizationError() noexcept
    : scale_min(std::numeric_limits<float>::infinity()) {}

BlockQuantizationError& BlockQuantizationError::operator+=(const BlockQuantizationError& other) noexcept {
  elements += other.elements;
  blocks += other.blocks;
  zero_blocks += other.zero_blocks;
  saturated_blocks += other.saturated_blocks;
  flushed_blocks += other.flushed_blocks;
  scale_min = std::min(scale_min, other.scale_min);
  scale_max = std::max(scale_max, other.scale_max);
  for (const WorstBlock& block : other.worst) enter(worst, block);
  return *this;
}

BlockQuantizationError quantization_error(const TensorView& x, const BlockScaledView& codes) {
  BlockQuantizationError result;
  add_quantization_error(x, codes, 0, result);
  return result;
}

void add_quantization_error(const TensorView& x, const BlockScaledView& codes, std::int64_t first_row_of_x,
                            BlockQuantizationError& result) {
  require_host(kOperation, "x", x);
  require_valid(codes, kOperation);
  AMAXSCOPE_CHECK(x.rows() == codes.rows() && x.cols() == codes.cols(), ErrorCode::kTensor,
                  "{}: x has shape {}, the codes are of {} x {}", kOperation, to_string(x.shape()),
                  codes.rows(), codes.cols());
  const BlockLayout& layout = codes.layout;
  AMAXSCOPE_CHECK(!codes.rotated || (layout.block_cols == 1 &&
                                     layout.block_rows == static_cast<std::int64_t>(kHadamardSize)),
                  ErrorCode::kTensor, "{}: rotated codes in blocks of {} x {}; rotated groups are {} x 1",
                  kOperation, layout.block_rows, layout.block_cols, kHadamardSize);
  const CodeGrid grid = code_grid(layout.format);
  const std::array<float, 256>& values = cpu::values_of_codes(layout.format);
  // Whole bytes are found by their steps along M and K.
  const bool bytes = layout.format != DType::kE2M1;
  const auto* stored = static_cast<const std::uint8_t*>(codes.codes.data());
  const std::int64_t down = layout.codes_transposed ? 1 : codes.codes.cols();
  const std::int64_t across = layout.codes_transposed ? codes.codes.cols() : 1;
  // Stretches of elements along K, or along M where a block has one column.
  const bool along_rows = layout.block_cols == 1;
  const std::int64_t step = along_rows ? down : across;
  constexpr auto kMost = static_cast<std::int64_t>(kStretch);
  Values original;
  Values decoded;
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const T* data = cpu::data_of<T>(x);
    const std::int64_t stride = along_rows ? x.row_stride() : 1;
    const auto add_stretch = [&](std::int64_t row, std::int64_t col, std::int64_t count, float scale,
                                 BlockSums& sums) {
      const auto n = static_cast<std::size_t>(count);
      const T* from = data + row * x.row_stride() + col;
      for (std::size_t i = 0; i < n; ++i) original[i] = to_float(from[static_cast<std::int64_t>(i) * stride]);
      if (codes.rotated) rotate(original.data());
      const std::uint8_t* code = stored + row * down + col * across;
      if (bytes && step == 1) {
        cpu::loops().f32.format(layout.format).decode(code, n, scale, decoded.data(), cpu::Store::kCached);
      } else if (bytes) {
        for (std::size_t i = 0; i < n; ++i) {
          decoded[i] = values[code[static_cast<std::int64_t>(i) * step]] * scale;
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::uint8_t nibble = along_rows ? codes.code(row + i, col) : codes.code(row, col + i);
          decoded[static_cast<std::size_t>(i)] = values[nibble] * scale;
        }
      }
      sums.add(original, decoded, n);
    };
    for (std::int64_t i = 0; i < codes.blocks_down(); ++i) {
      const std::int64_t first_row = i * layout.block_rows;
      const std::int64_t end_row = std::min(first_row + layout.block_rows, codes.rows());
      for (std::int64_t j = 0; j < codes.blocks_across(); ++j) {
        const std::int64_t first_col = j * layout.block_cols;
        const std::int64_t end_col = std::min(first_col + layout.block_cols, codes.cols());
        const float scale = codes.scale(i, j);
        BlockSums sums(scale, grid);
        if (along_rows) {
          for (std::int64_t row = first_row; row < end_row; row += kMost) {
            add_stretch(row, first_col, std::min(kMost, end_row - row), scale, sums);
          }
        } else {
          for (std::int64_t row = first_row; row < end_row; ++row) {
            for (std::int64_t col = first_col; col < end_col; col += kMost) {
              add_stretch(row, col, std::min(kMost, end_col - col), scale, sums);
            }
          }
        }
        WorstBlock worst{.row = first_row_of_x + first_row, .col = first_col};
        sums.add_to(result, worst);
        enter(result.worst, worst);
      }
    }
  });
}

BlockScaledView as_one_block(const TensorView& codes, bool transposed, const float& scale_inv) {
  const std::int64_t rows = transposed ? codes.cols() : codes.rows();
  const std::int64_t cols = transposed ? codes.rows() : codes.cols();
  const std::int64_t down = std::max<std::int64_t>(rows, 1);
  const std::int64_t across = std::max<std::int64_t>(cols, 1);
  BlockScaledView view;
  view.codes = codes.reshaped({codes.rows(), codes.cols()});
  view.layout = {.format = codes.dtype(),
                 .scale_format = DType::kF32,
                 .block_rows = down,
                 .block_cols = across,
                 .scale_rows = down,
                 .scale_cols = across,
                 .codes_transposed = transposed};
  view.scales = TensorView(&scale_inv, DType::kF32, view.layout.scales_shape(rows, cols));
  return view;
}

}  // namespace amaxscope

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/quantization_error.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "quantization_error";

/// The sums of one block.
class BlockSums {
 public:
  BlockSums(float scale, const CodeGrid& grid)
      : scale_(scale), limit_(grid.max * scale), saturates_from_(grid.saturates_from) {}

  /// code: decoded, without the scale.
  void add(float x, float code) {
    ++sums_.numel;
    if (std::isnan(x)) {
      ++sums_.nan;
      return;
    }
    const float magnitude = std::abs(x);
    const float q = code * scale_;
    const bool scaled = scale_ > 0.0F;
    const bool flushed = x != 0.0F && (q == 0.0F || scale_ == 0.0F);
    const bool saturated = scaled && magnitude / scale_ >= saturates_from_;
    empty_ = empty_ && x == 0.0F;
    sums_.underflows += flushed ? 1U : 0U;
    sums_.saturated += saturated ? 1U : 0U;
    sums_.overflows += scaled && magnitude > limit_ ? 1U : 0U;
    if (!std::isfinite(x) || !std::isfinite(q)) return;
    ++sums_.compared;
    const auto original = static_cast<double>(x);
    const auto decoded = static_cast<double>(q);
    const double error = original - decoded;
    const double square = original * original;
    sums_.error_squares += error * error;
    sums_.signal_squares += square;
    sums_.quantized_squares += decoded * decoded;
    sums_.product += original * decoded;
    if (saturated) sums_.saturated_squares += square;
    if (flushed) sums_.flushed_squares += square;
    sums_.max_error = std::max(sums_.max_error, static_cast<float>(std::abs(error)));
  }

  void add_to(BlockQuantizationError& result, WorstBlock& worst) const {
    result.elements += sums_;
    ++result.blocks;
    result.zero_blocks += empty_ ? 1U : 0U;
    result.saturated_blocks += sums_.saturated > 0 ? 1U : 0U;
    result.flushed_blocks += sums_.underflows > 0 ? 1U : 0U;
    if (!empty_ && scale_ > 0.0F && std::isfinite(scale_)) {
      result.scale_min = std::min(result.scale_min, scale_);
      result.scale_max = std::max(result.scale_max, scale_);
    }
    worst.error_squares = sums_.error_squares;
  }

 private:
  float scale_, limit_, saturates_from_;
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
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const T* data = cpu::data_of<T>(x);
    for (std::int64_t i = 0; i < codes.blocks_down(); ++i) {
      const std::int64_t first_row = i * layout.block_rows;
      const std::int64_t end_row = std::min(first_row + layout.block_rows, codes.rows());
      for (std::int64_t j = 0; j < codes.blocks_across(); ++j) {
        const std::int64_t first_col = j * layout.block_cols;
        const std::int64_t end_col = std::min(first_col + layout.block_cols, codes.cols());
        BlockSums sums(codes.scale(i, j), grid);
        if (codes.rotated) {
          std::array<float, kHadamardSize> group;
          for (std::int64_t row = first_row; row < end_row; ++row) {
            group[static_cast<std::size_t>(row - first_row)] =
                to_float(data[row * x.row_stride() + first_col]);
          }
          rotate(group.data());
          for (std::int64_t row = first_row; row < end_row; ++row) {
            sums.add(group[static_cast<std::size_t>(row - first_row)], values[codes.code(row, first_col)]);
          }
        } else {
          for (std::int64_t row = first_row; row < end_row; ++row) {
            const T* in_row = data + row * x.row_stride();
            for (std::int64_t col = first_col; col < end_col; ++col) {
              const std::uint8_t code = bytes ? stored[row * down + col * across] : codes.code(row, col);
              sums.add(to_float(in_row[col]), values[code]);
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

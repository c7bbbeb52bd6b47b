#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/cpu/block_error_lanes.hpp"
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
      overflows += (has_scale_ & (magnitude > limit_)) ? 1U : 0U;
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

  [[nodiscard]] const QuantizationError& sums() const noexcept { return sums_; }
  /// Of anything but zeros and NaN.
  [[nodiscard]] bool empty() const noexcept { return empty_; }

 private:
  [[nodiscard]] bool is_flushed(float magnitude, float q) const {
    return (magnitude > 0.0F) & ((q == 0.0F) | (scale_ == 0.0F));
  }
  [[nodiscard]] bool is_saturated(float magnitude) const {
    return has_scale_ & (magnitude / scale_ >= saturates_from_);
  }

  float scale_, limit_, saturates_from_;
  bool has_scale_;
  bool empty_ = true;
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

/// Adds the errors of all blocks in their order: those of a row of blocks first.
template <class T>
class BlockErrors {
 public:
  BlockErrors(const TensorView& x, const BlockScaledView& codes, std::int64_t first_row_of_x,
              BlockQuantizationError& result)
      : x_(x),
        codes_(codes),
        layout_(codes.layout),
        grid_(code_grid(codes.layout.format)),
        first_row_of_x_(first_row_of_x),
        result_(result),
        reader_(x, codes) {}

  void add() {
    const std::int64_t whole = codes_.cols() / layout_.block_cols;  // blocks that are not cut at the right
    const std::int64_t across = codes_.blocks_across();
    constexpr auto kLanes = static_cast<std::int64_t>(cpu::kErrorLanes);
    for (std::int64_t i = 0; i < codes_.blocks_down(); ++i) {
      for (std::int64_t j = 0; j < across;) {
        const std::int64_t lanes = std::min(kLanes, whole - j);
        if (lanes >= kWorthLanes) {
          add_lanes(i, j, static_cast<std::size_t>(lanes));
          j += lanes;
        } else {
          add_one(i, j++);
        }
      }
    }
  }

 private:
  /// Sixteen blocks at a time take about as long as three one by one.
  static constexpr std::int64_t kWorthLanes = 4;

  [[nodiscard]] std::int64_t end_row(std::int64_t i) const {
    return std::min((i + 1) * layout_.block_rows, codes_.rows());
  }
  [[nodiscard]] std::int64_t end_col(std::int64_t j) const {
    return std::min((j + 1) * layout_.block_cols, codes_.cols());
  }

  /// action(row, col, count) for the stretches of a block in the order of its elements: along K, or along M
  /// where a block has one column.
  template <class Action>
  void over_stretches(std::int64_t i, std::int64_t j, std::int64_t most, Action&& action) const {
    const std::int64_t first_row = i * layout_.block_rows;
    const std::int64_t first_col = j * layout_.block_cols;
    if (layout_.block_cols == 1) {
      for (std::int64_t row = first_row; row < end_row(i); row += most) {
        action(row, first_col, static_cast<std::size_t>(std::min(most, end_row(i) - row)));
      }
      return;
    }
    for (std::int64_t row = first_row; row < end_row(i); ++row) {
      for (std::int64_t col = first_col; col < end_col(j); col += most) {
        action(row, col, static_cast<std::size_t>(std::min(most, end_col(j) - col)));
      }
    }
  }

  void enter_block(std::int64_t i, std::int64_t j, const QuantizationError& sums, float scale, bool empty) {
    result_.elements += sums;
    ++result_.blocks;
    result_.zero_blocks += empty ? 1U : 0U;
    result_.saturated_blocks += sums.saturated > 0 ? 1U : 0U;
    result_.flushed_blocks += sums.underflows > 0 ? 1U : 0U;
    if (!empty && scale > 0.0F && std::isfinite(scale)) {
      result_.scale_min = std::min(result_.scale_min, scale);
      result_.scale_max = std::max(result_.scale_max, scale);
    }
    enter(result_.worst, {.error_squares = sums.error_squares,
                          .row = first_row_of_x_ + i * layout_.block_rows,
                          .col = j * layout_.block_cols});
  }

  /// `lanes` blocks from (i, j) on, none of which is cut at the right.
  void add_lanes(std::int64_t i, std::int64_t j, std::size_t lanes) {
    cpu::LaneScales scales{.scale = {}, .limit = {}, .saturates_from = grid_.saturates_from};
    const std::int64_t first_scale = codes_.scale_index(i * layout_.block_rows, j * layout_.block_cols);
    const std::int64_t step =
        layout_.block_cols / layout_.scale_cols * (layout_.scales_transposed ? codes_.scales.cols() : 1);
    for (std::size_t lane = 0; lane < cpu::kErrorLanes; ++lane) {
      const bool used = lane < lanes;
      scales.scale[lane] =
          used ? codes_.stored_scale(first_scale + static_cast<std::int64_t>(lane) * step) : 1.0F;
      scales.limit[lane] = grid_.max * scales.scale[lane];
    }
    cpu::LaneErrors sums;
    over_stretches(i, j, cpu::kErrorSteps, [&](std::int64_t row, std::int64_t col, std::size_t count) {
      reader_.read(row, col, lanes, count);
      cpu::loops().block_errors->add(reader_.x(), reader_.values(), count, scales, sums);
    });
    const auto numel = static_cast<std::uint64_t>((end_row(i) - i * layout_.block_rows) * layout_.block_cols);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::int64_t block = j + static_cast<std::int64_t>(lane);
      const float scale = scales.scale[lane];
      if (!(scale > 0.0F && scale < kInf) || sums.max_error[lane] >= std::bit_cast<std::uint32_t>(kInf)) {
        add_one(i, block);
        continue;
      }
      enter_block(i, block,
                  {.numel = numel,
                   .compared = numel,
                   .underflows = sums.underflows[lane],
                   .overflows = sums.overflows[lane],
                   .saturated = sums.saturated[lane],
                   .error_squares = sums.error_squares[lane],
                   .signal_squares = sums.signal_squares[lane],
                   .quantized_squares = sums.quantized_squares[lane],
                   .product = sums.products[lane],
                   .saturated_squares = sums.saturated_squares[lane],
                   .flushed_squares = sums.flushed_squares[lane],
                   .max_error = std::bit_cast<float>(sums.max_error[lane])},
                  scale, sums.largest[lane] == 0);
    }
  }

  /// A block with whatever values, cut or not.
  void add_one(std::int64_t i, std::int64_t j) {
    const float scale = codes_.scale(i, j);
    const bool along_rows = layout_.block_cols == 1;
    const bool contiguous = layout_.format != DType::kE2M1 && along_rows == layout_.codes_transposed;
    const std::array<float, 256>& values = cpu::values_of_codes(layout_.format);
    const T* data = cpu::data_of<T>(x_);
    const std::int64_t stride = along_rows ? x_.row_stride() : 1;
    BlockSums sums(scale, grid_);
    Values original;
    Values decoded;
    over_stretches(i, j, kStretch, [&](std::int64_t row, std::int64_t col, std::size_t count) {
      const T* from = data + row * x_.row_stride() + col;
      for (std::size_t k = 0; k < count; ++k)
        original[k] = to_float(from[static_cast<std::int64_t>(k) * stride]);
      if (codes_.rotated) rotate(original.data());
      if (contiguous) {
        const auto* stored = static_cast<const std::uint8_t*>(codes_.codes.data());
        const std::uint8_t* code =
            stored + (along_rows ? col : row) * codes_.codes.cols() + (along_rows ? row : col);
        cpu::loops()
            .f32.format(layout_.format)
            .decode(code, count, scale, decoded.data(), cpu::Store::kCached);
      } else {
        for (std::size_t k = 0; k < count; ++k) {
          const auto at = static_cast<std::int64_t>(k);
          decoded[k] = values[along_rows ? codes_.code(row + at, col) : codes_.code(row, col + at)] * scale;
        }
      }
      sums.add(original, decoded, count);
    });
    enter_block(i, j, sums.sums(), scale, sums.empty());
  }

  const TensorView& x_;
  const BlockScaledView& codes_;
  const BlockLayout& layout_;
  CodeGrid grid_;
  std::int64_t first_row_of_x_;
  BlockQuantizationError& result_;
  cpu::LaneReader<T> reader_;
};

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
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    BlockErrors<T>(x, codes, first_row_of_x, result).add();
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

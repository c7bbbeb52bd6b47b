// I5: a scale made from the tensor's own amax maps that amax inside of the format.
// Under delayed scaling a larger amax is normal staleness and an overflow count, not a broken invariant.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "features/invariants/check.hpp"
#include "features/invariants/sampling.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

namespace {

/// One rounding of the division that made the scale.
constexpr double kRounding = 1.0 + 0x1p-23;

class BoundsCheck final : public InvariantCheck {
 public:
  explicit BoundsCheck(std::size_t sample) : InvariantCheck("I5"), sample_(sample) {}

  void inspect(const InspectContext& context) override {
    if (!context.has_original || context.x.numel() == 0) return;
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const QuantizedTensor* member = context.operand(direction);
      if (member == nullptr) continue;
      if (const auto* codes = dynamic_cast<const Float8Tensor*>(member)) check(context, direction, *codes);
      if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(member)) {
        if (blocks->usage().has(direction)) check(context, direction, blocks->blocks(direction));
        continue;  // the directions have blocks of their own
      }
      if (context.rowwise == context.columnwise) return;
    }
  }

 private:
  void check(const InspectContext& context, Direction direction, const Float8Tensor& codes) {
    const auto amax = std::bit_cast<float>(context.amax());
    const bool delayed = context.tensor.recipe == RecipeKind::kDelayed && !context.is_modified(direction);
    if (delayed || amax == 0.0F || !std::isfinite(amax)) return;
    count();
    const DType format = codes.format(Direction::kRowwise);
    const double scaled = double{amax} * double{codes.scale()};
    if (scaled <= double{fp8_max(format)} * kRounding) return;
    fail(context,
         fmt::format(
             "the scale is {:.4g} times too large for {}: amax {:.9g} times scale {:.9g} is {:.6g}, the "
             "format ends at {}",
             scaled / double{fp8_max(format)}, to_string(format), amax, codes.scale(), scaled,
             fp8_max(format)),
         {{"amax", fmt::format("{:.9g}", amax)},
          {"scale", fmt::format("{:.9g}", codes.scale())},
          {"format", std::string(to_string(format))}});
  }

  /// Sampled blocks. One scale of NVFP4 is rounded to the nearest E4M3, which may be lower by a sixteenth.
  void check(const InspectContext& context, Direction direction, const BlockScaledView& view) {
    if (view.rotated || view.block_count() == 0) return;
    count();
    const double largest = code_grid(view.layout.format).max;
    const double slack = view.tensor_scale ? 1.0 + 0x1p-4 + 0x1p-10 : 1.0 + 0x1p-22;
    const std::int64_t size = view.layout.block_rows * view.layout.block_cols;
    const auto affordable = static_cast<std::size_t>(std::max<std::int64_t>(1, kMostElements / size));
    std::size_t compared = 0;
    std::size_t beyond = 0;
    std::int64_t first = -1;
    double first_excess = 0;
    for (const std::int64_t block : sample_positions(view.block_count(), std::min(sample_, affordable))) {
      const std::int64_t i = block / view.blocks_across();
      const std::int64_t j = block % view.blocks_across();
      const double scale = view.scale(i, j);
      // NVFP4 scales below the normal E4M3 are rounded more coarsely than that.
      if (!std::isfinite(scale) || scale <= 0 ||
          (view.tensor_scale && scale < kSmallestNormal * tensor_unit(view)))
        continue;
      ++compared;
      const double excess = block_amax(context.x, view, i, j) / scale / largest;
      if (excess <= slack) continue;
      if (beyond++ == 0) {
        first = block;
        first_excess = excess;
      }
    }
    if (beyond == 0) return;
    fail(
        context,
        fmt::format("block scales are too small for their blocks: {} of {} sampled {} blocks saturate; block "
                    "({}, {}) is {:.4g} times the largest {} under its scale",
                    beyond, compared, to_string(direction), first / view.blocks_across(),
                    first % view.blocks_across(), first_excess, to_string(view.layout.format)),
        {{"direction", std::string(to_string(direction))},
         {"saturated_blocks", fmt::format("{}", beyond)},
         {"sampled_blocks", fmt::format("{}", compared)}});
  }

  /// What an E4M3 block scale of 1 stands for.
  static double tensor_unit(const BlockScaledView& view) {
    return double{view.tensor_scale->amax} * double{view.tensor_scale->factor};
  }
  /// Of the elements that are finite.
  static double block_amax(const TensorView& x, const BlockScaledView& view, std::int64_t i, std::int64_t j) {
    double amax = 0;
    const std::int64_t last_row = std::min(view.rows(), (i + 1) * view.layout.block_rows);
    const std::int64_t last_col = std::min(view.cols(), (j + 1) * view.layout.block_cols);
    for (std::int64_t row = i * view.layout.block_rows; row < last_row; ++row) {
      for (std::int64_t col = j * view.layout.block_cols; col < last_col; ++col) {
        const float value = std::abs(element(x, row * x.cols() + col));
        if (std::isfinite(value)) amax = std::max(amax, double{value});
      }
    }
    return amax;
  }

  static constexpr std::int64_t kMostElements = 1 << 16;
  static constexpr double kSmallestNormal = 0x1p-6;

  std::size_t sample_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_bounds_check(std::size_t sample) {
  return std::make_unique<BoundsCheck>(sample);
}

}  // namespace amaxscope

// I3: the rowwise and the columnwise copy of a tensor stand for the same values, as far as both grids allow.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "features/invariants/check.hpp"
#include "features/invariants/sampling.hpp"

namespace amaxscope {

namespace {

bool agree(const DecodedElement& a, const DecodedElement& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) return std::isnan(a.value) == std::isnan(b.value);
  if (a.saturated || b.saturated) return std::signbit(a.value) == std::signbit(b.value) || a.value == b.value;
  // A little room for the rounding of the scales themselves.
  constexpr double kSlack = 1.0 + 0x1p-20;
  return std::abs(double{a.value} - double{b.value}) <= kSlack * (double{a.tolerance} + double{b.tolerance});
}

/// The sign of a NaN means nothing, but would be printed.
float shown(float value) { return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value; }

class CopiesCheck final : public InvariantCheck {
 public:
  explicit CopiesCheck(std::size_t sample) : InvariantCheck("I3"), sample_(sample) {}

  void inspect(const InspectContext& context) override { compare(context); }
  void inspect_reuse(const InspectContext& context) override { compare(context); }

 private:
  void compare(const InspectContext& context) {
    if (context.rowwise == nullptr || context.columnwise == nullptr) return;
    // What fake quantization left in high precision has a grid that it does not show.
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      if (context.is_modified(direction) && is_high_precision(context.operand(direction)->format(direction)))
        return;
    }
    const std::int64_t numel = context.rowwise->shape().numel();
    std::size_t compared = 0;
    std::size_t apart = 0;
    std::int64_t first = -1;
    DecodedElement row_then;
    DecodedElement column_then;
    for (const std::int64_t index : sample_positions(numel, sample_)) {
      const auto row = decoded_element(*context.rowwise, Direction::kRowwise, index);
      const auto column = decoded_element(*context.columnwise, Direction::kColumnwise, index);
      if (!row || !column) return;
      ++compared;
      const bool one_set_of_codes =
          context.rowwise == context.columnwise && row->tolerance == column->tolerance;
      const bool equal =
          one_set_of_codes && !std::isnan(row->value) ? row->value == column->value : agree(*row, *column);
      if (equal) continue;
      ++apart;
      if (first >= 0) continue;
      first = index;
      row_then = *row;
      column_then = *column;
    }
    if (compared == 0) return;
    count();
    if (apart == 0) return;
    const std::int64_t columns = std::max<std::int64_t>(1, context.rowwise->shape().cols());
    // Which of the two is wrong shows the original, when it is there.
    std::string_view culprit = "columnwise";
    if (context.has_original) {
      const double original = element(context.x, first);
      const bool row_off =
          std::abs(double{row_then.value} - original) > std::abs(double{column_then.value} - original);
      if (row_off) culprit = "rowwise";
    }
    fail(context,
         fmt::format("the {} copy does not stand for the same values as the other: {} of {} sampled elements "
                     "are further apart than rounding explains; at row {}, column {} rowwise is {:.6g}, "
                     "columnwise {:.6g}",
                     culprit, apart, compared, first / columns, first % columns, shown(row_then.value),
                     shown(column_then.value)),
         {{"copy", std::string(culprit)},
          {"sampled", fmt::format("{}", compared)},
          {"apart", fmt::format("{}", apart)},
          {"index", fmt::format("{}", first)}});
  }

  std::size_t sample_;
};

}  // namespace

std::unique_ptr<InvariantCheck> make_copies_check(std::size_t sample) {
  return std::make_unique<CopiesCheck>(sample);
}

}  // namespace amaxscope

// I5: a scale made from the tensor's own amax maps that amax inside of the format.
// Under delayed scaling a larger amax is normal staleness and an overflow count, not a broken invariant.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "features/invariants/check.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope {

namespace {

/// One rounding of the division that made the scale.
constexpr double kRounding = 1.0 + 0x1p-23;

/// Whether these are the codes of the recipe's delayed scaling.
bool is_delayed(const Quantizer* quantizer, const Float8Tensor& codes) {
  const auto* delayed = dynamic_cast<const Float8Quantizer*>(quantizer);
  return delayed != nullptr && delayed->slot().scale == codes.scale();
}

class BoundsCheck final : public InvariantCheck {
 public:
  using InvariantCheck::InvariantCheck;

  void inspect(const InspectContext& context) override {
    if (!context.has_original || context.x.numel() == 0) return;
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const QuantizedTensor* member = direction == Direction::kRowwise ? context.rowwise : context.columnwise;
      if (member == nullptr) continue;
      if (const auto* codes = dynamic_cast<const Float8Tensor*>(member)) check(context, *codes);
      if (context.rowwise == context.columnwise) return;
    }
  }

 private:
  void check(const InspectContext& context, const Float8Tensor& codes) {
    const auto amax = std::bit_cast<float>(context.amax());
    if (is_delayed(context.quantizer, codes) || amax == 0.0F || !std::isfinite(amax)) return;
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
};

}  // namespace

std::unique_ptr<InvariantCheck> make_bounds_check(std::size_t sample) {
  return std::make_unique<BoundsCheck>("I5", sample);
}

}  // namespace amaxscope

#include "runtime/feature/host_view.hpp"

#include <array>

#include "core/device_backend.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::array kDirections = {Direction::kRowwise, Direction::kColumnwise};

bool is_here(const TensorView& view) { return view.device().kind == DeviceKind::kCpu; }
bool is_here(const TensorView* view) { return view == nullptr || is_here(*view); }

bool is_here(const QuantizedTensor* operand) {
  if (operand == nullptr) return true;
  for (const Direction direction : kDirections) {
    if (operand->usage().has(direction) && !is_here(operand->operand(direction).data)) return false;
  }
  return true;
}

bool is_here(const GemmInputs* inputs) {
  return inputs == nullptr || (is_here(inputs->a.data) && is_here(inputs->b.data));
}

}  // namespace

bool is_on_host(const InspectContext& context) {
  return (!context.has_original || is_here(context.x)) && is_here(context.rowwise) &&
         is_here(context.columnwise) && is_here(context.gemm) && is_here(context.weight) &&
         is_here(context.normalized_gradient);
}

std::shared_ptr<QuantizedTensor> to_host(const QuantizedTensor& operand) {
  if (const auto* codes = dynamic_cast<const Float8Tensor*>(&operand)) {
    const auto copy = [&](Direction direction) {
      return codes->usage().has(direction) ? to_host(codes->codes(direction).view()) : Tensor();
    };
    return std::make_shared<Float8Tensor>(codes->shape(), codes->format(Direction::kRowwise),
                                          copy(Direction::kRowwise), copy(Direction::kColumnwise),
                                          codes->scale(), codes->scale_inv());
  }
  if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&operand)) {
    const auto copy = [&](Direction direction) {
      if (blocks->usage().has(direction)) return to_host(blocks->blocks(direction));
      return BlockScaledCodes{.codes = {}, .scales = {}, .layout = blocks->layout(direction)};
    };
    return std::make_shared<BlockScaledTensor>(blocks->shape(), blocks->recipe(), copy(Direction::kRowwise),
                                               copy(Direction::kColumnwise));
  }
  if (const auto* plain = dynamic_cast<const HighPrecisionTensor*>(&operand))
    return std::make_shared<HighPrecisionTensor>(to_host(plain->view()), plain->dequantized_from());
  throw Error(ErrorCode::kTensor, fmt::format("an operand of shape {} on a device is of a kind that only its "
                                              "maker can copy to the host; FP8, block-scaled codes and high "
                                              "precision can be",
                                              to_string(operand.shape())));
}

TensorView HostView::here(const TensorView& view) {
  return is_here(view) ? view : tensors_.emplace_back(to_host(view)).view();
}

std::optional<TensorView> HostView::here(const TensorView* view) {
  return view == nullptr ? std::nullopt : std::optional(here(*view));
}

GemmOperand HostView::here(const GemmOperand& operand) {
  if (is_here(operand.data)) return operand;
  GemmOperand copy = operand;
  copy.device_scale_inv.reset();
  if (operand.device_scale_inv) copy.scale_inv = to_host(*operand.device_scale_inv).values<float>()[0];
  if (operand.blocks) {
    copy.blocks = blocks_.emplace_back(to_host(*operand.blocks)).view();
    copy.data = copy.blocks->codes;
  } else {
    copy.data = here(operand.data);
  }
  return copy;
}

std::optional<GemmInputs> HostView::here(const GemmInputs* inputs) {
  if (inputs == nullptr) return std::nullopt;
  GemmInputs copy{.a = here(inputs->a), .b = here(inputs->b)};
  if (inputs->original_a) copy.original_a = here(*inputs->original_a);
  if (inputs->original_b) copy.original_b = here(*inputs->original_b);
  return copy;
}

HostView::HostView(const InspectContext& there)
    : x_(there.has_original ? here(there.x) : TensorView()),
      rowwise_(there.rowwise != nullptr ? to_host(*there.rowwise) : nullptr),
      // One object stays one: what has a single set of codes is known by it.
      columnwise_(there.columnwise == there.rowwise ? rowwise_
                  : there.columnwise != nullptr     ? to_host(*there.columnwise)
                                                    : nullptr),
      weight_(here(there.weight)),
      normalized_gradient_(here(there.normalized_gradient)),
      gemm_(here(there.gemm)),
      context_{.tensor = there.tensor,
               .iteration = there.iteration,
               .moment = there.moment,
               .x = x_,
               .has_original = there.has_original,
               .rowwise = rowwise_.get(),
               .columnwise = columnwise_.get(),
               .quantizer = there.quantizer,
               .tp_amax = there.tp_amax,
               .modified = there.modified,
               .gemm = gemm_ ? &*gemm_ : nullptr,
               .weight = weight_ ? &*weight_ : nullptr,
               .normalized_gradient = normalized_gradient_ ? &*normalized_gradient_ : nullptr,
               .device_results = there.device_results} {}

}  // namespace amaxscope

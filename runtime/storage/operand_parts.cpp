#include "runtime/storage/operand_parts.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

void OperandParts::add_number(const std::string& name, float number) {
  numbers_.push_back(number);
  add(name, TensorView(&numbers_.back(), DType::kF32, Shape{1}));
}

void OperandParts::add_direction(const QuantizedTensor& operand, Direction direction) {
  if (!operand.usage().has(direction)) return;
  const std::string name(to_string(direction));
  formats_[name + "_format"] = to_string(operand.format(direction));
  if (const auto* per_tensor = dynamic_cast<const Float8Tensor*>(&operand)) {
    add(name, per_tensor->codes(direction));
    add_number(name + "_scale_inv", per_tensor->scale_inv());
  } else if (const auto* plain = dynamic_cast<const HighPrecisionTensor*>(&operand)) {
    add(name + "_high_precision", plain->view());
  } else if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&operand)) {
    const BlockScaledView view = blocks->blocks(direction);
    add(name, view.layout.codes_transposed ? view.codes : view.codes.reshaped(operand.shape()));
    add(name + "_scale_inv", view.scales);
    if (view.tensor_scale) add_number(name + "_amax", view.tensor_scale->amax);
    formats_[name + "_block"] = fmt::format("{}x{}", view.layout.block_rows, view.layout.block_cols);
    if (view.layout.codes_transposed) formats_[name + "_codes"] = "transposed";
    if (view.layout.scales_transposed) formats_[name + "_scales"] = "transposed";
    if (view.rotated) formats_[name + "_rotated"] = "true";
  } else {
    throw Error(ErrorCode::kInternal, fmt::format("{} codes of the format {} cannot be written to a file",
                                                  name, to_string(operand.format(direction))));
  }
}

}  // namespace amaxscope

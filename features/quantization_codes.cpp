#include "features/quantization_codes.hpp"

#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

bool is_per_tensor(RecipeKind recipe) noexcept {
  return recipe == RecipeKind::kDelayed || recipe == RecipeKind::kCurrent;
}

bool is_of(const QuantizedTensor& codes, RecipeKind recipe) {
  const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&codes);
  return blocks == nullptr ? is_per_tensor(recipe) : blocks->recipe() == recipe;
}

RunningCodes running_codes(const QuantizationStatName& name, const InspectContext& context) {
  const Direction direction = direction_of(name);
  const QuantizedTensor* operand = context.operand(direction);
  if (const QuantizedTensor* codes = codes_in(operand, direction)) return {codes, direction};
  // One scale: the other direction has the same codes.
  if (!is_per_tensor(context.tensor.recipe)) return {};
  return {codes_in(context.columnwise, Direction::kColumnwise), Direction::kColumnwise};
}

}  // namespace amaxscope

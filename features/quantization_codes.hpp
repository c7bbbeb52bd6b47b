// Which codes a statistic of a quantization is about. Free functions.
#pragma once

#include "features/quantization_stats.hpp"

namespace amaxscope {

/// Recipes with one scale for a tensor.
bool is_per_tensor(RecipeKind recipe) noexcept;
/// Whether codes are of this recipe's kind.
bool is_of(const QuantizedTensor& codes, RecipeKind recipe);

struct RunningCodes {
  const QuantizedTensor* codes = nullptr;  ///< null: there are none
  Direction direction = Direction::kRowwise;
};
/// The GEMM's codes that a statistic is about.
RunningCodes running_codes(const QuantizationStatName& name, const InspectContext& context);

/// The direction that a statistic's name says.
inline Direction direction_of(const QuantizationStatName& name) noexcept {
  return name.columnwise ? Direction::kColumnwise : Direction::kRowwise;
}

}  // namespace amaxscope

#include "runtime/quantizers/recipe.hpp"

#include "core/error.hpp"
#include "kernels/block_scale.hpp"

namespace amaxscope {

std::string_view to_string(RecipeKind recipe) noexcept {
  switch (recipe) {
    case RecipeKind::kNone:
      return "none";
    case RecipeKind::kDelayed:
      return "delayed";
    case RecipeKind::kCurrent:
      return "current";
    case RecipeKind::kMxfp8:
      return "mxfp8";
    case RecipeKind::kBlock:
      return "block";
    case RecipeKind::kNvfp4:
      return "nvfp4";
  }
  return "unknown";
}

std::optional<RecipeKind> parse_recipe(std::string_view text) noexcept {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                  RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    if (to_string(recipe) == text) return recipe;
  }
  return std::nullopt;
}

DType operand_format(RecipeKind recipe, TensorKind tensor) {
  AMAXSCOPE_CHECK(recipe != RecipeKind::kNone, ErrorCode::kUsage, "without a recipe {} has no code format",
                  to_string(tensor));
  if (recipe == RecipeKind::kMxfp8 || recipe == RecipeKind::kBlock) return DType::kE4M3;
  if (recipe == RecipeKind::kNvfp4) return DType::kE2M1;
  // HYBRID: precision for the forward tensors, range for those of the backward pass.
  return training_phase(tensor) == Phase::kBackward ? DType::kE5M2 : DType::kE4M3;
}

std::int64_t block_extent(RecipeKind recipe) noexcept {
  if (recipe == RecipeKind::kMxfp8) return kMxfp8Block;
  if (recipe == RecipeKind::kBlock) return kFp8Block;
  return recipe == RecipeKind::kNvfp4 ? kNvfp4Block : 1;
}

std::int64_t required_multiple(RecipeKind recipe) noexcept {
  return recipe == RecipeKind::kBlock ? 1 : block_extent(recipe);
}

}  // namespace amaxscope

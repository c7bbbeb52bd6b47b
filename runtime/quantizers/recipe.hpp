// Quantization recipes and the formats they choose for each tensor (numerics: recipe defaults). Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.hpp"
#include "runtime/names.hpp"

namespace amaxscope {

enum class RecipeKind { kNone, kDelayed, kCurrent, kMxfp8, kBlock, kNvfp4 };

std::string_view to_string(
    RecipeKind recipe) noexcept;  ///< "none" "delayed" "current" "mxfp8" "block" "nvfp4"
std::optional<RecipeKind> parse_recipe(std::string_view text) noexcept;

/// Code format of an operand: under delayed and current scaling E4M3, and E5M2 for gradients (HYBRID); E4M3
/// under MXFP8 and block scaling, E2M1 under NVFP4. Throws Error(kUsage) for no recipe.
DType operand_format(RecipeKind recipe, TensorKind tensor);

/// Elements along a dimension that the recipe scales together: 32 (mxfp8), 128 (block), 16 (nvfp4); 1 for one
/// scale or none.
std::int64_t block_extent(RecipeKind recipe) noexcept;
/// What the extents of an operand must be multiples of: block_extent, but 1 where blocks may be cut (block).
std::int64_t required_multiple(RecipeKind recipe) noexcept;

/// Whether a tensor's codes have a scale from its own amax (current scaling; NVFP4 beside those of blocks).
constexpr bool has_tensor_amax(RecipeKind recipe) noexcept {
  return recipe == RecipeKind::kCurrent || recipe == RecipeKind::kNvfp4;
}

}  // namespace amaxscope

// The quantizer of a recipe for one operand, by name: what layers, what-ifs and features that override a
// recipe use.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/quantizers/float8_block.hpp"
#include "runtime/quantizers/mxfp8.hpp"
#include "runtime/quantizers/nvfp4.hpp"

namespace amaxscope {

/// What recipes can be told, each for itself. Nothing is read from the environment.
struct RecipeOptions {
  CurrentScalingOptions current;
  Mxfp8Options mxfp8;
  BlockScalingOptions block;
  Nvfp4Options nvfp4;
};

struct QuantizerRequest {
  RecipeKind recipe = RecipeKind::kCurrent;     ///< not kNone
  TensorKind tensor = TensorKind::kActivation;  ///< an operand; chooses the recipe's defaults
  std::optional<DType> format = std::nullopt;   ///< none: operand_format(recipe, tensor)
  std::string name = {};                        ///< "layer.tensor": messages and the random stream
  ReduceAmaxes reduce_amaxes = {};              ///< current scaling and NVFP4; the others have no use for it
  DelayedScalingState* delayed = nullptr;       ///< kDelayed needs it: a slot is added
  RecipeOptions options = {};
};

/// Throws Error(kUsage) for no recipe, for the result of a GEMM, for a format that the recipe has not, and
/// for delayed scaling without a state.
std::shared_ptr<Quantizer> make_quantizer(const QuantizerRequest& request);

}  // namespace amaxscope

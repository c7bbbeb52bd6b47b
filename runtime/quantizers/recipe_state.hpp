// What the recipes of a training must find again after a restart, as tensors of a file: histories and scales
// of delayed scaling, places in the random numbers of NVFP4. Used by one thread; nothing here communicates.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/quantizers/nvfp4.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

/// Borrowed, on one rank.
struct RecipeParts {
  DelayedScalingState* delayed = nullptr;  ///< null: no layer of that recipe
  /// By tensor ("decoder.layers.1.mlp.linear_fc1.gradient").
  std::map<std::string, Nvfp4Quantizer*> streams = {};
};

/// Adds the parts to what is to be written, between two steps; `kept` owns what the views borrow. Names are
/// "delayed/TENSOR/history", "delayed/TENSOR/scale" and "random/TENSOR".
void add_recipe_state(const RecipeParts& parts, std::vector<NamedTensor>& tensors, std::deque<Tensor>& kept);

/// What a file holds of them.
struct RecipeState {
  std::vector<DelayedScalingState::Slot> slots;  ///< of RecipeParts::delayed, in its order
  std::vector<std::uint64_t> places;             ///< of RecipeParts::streams, in its order
};
/// Changes nothing. Throws Error(kInput) naming the file and what is missing or does not fit.
RecipeState read_recipe_state(const SafetensorsFile& file, const RecipeParts& parts);
/// Puts back what was read for these parts.
void restore_recipe_state(RecipeState state, const RecipeParts& parts);

/// The tensor of that name, of the type and shape of `wanted`. Throws Error(kInput) saying what the file has.
const StoredTensor& stored_like(const SafetensorsFile& file, const std::string& name,
                                const TensorView& wanted);

}  // namespace amaxscope

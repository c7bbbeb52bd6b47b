// The GEMM layers of a dump, as they were registered when it was made.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "launch/replay_index.hpp"
#include "runtime/layer.hpp"

namespace amaxscope::launch {

/// parts: those of the layer, of all ranks of the stage. tp: of this rank; null for one rank. recipe: none of
/// the options means the dump's own. What the dump does not say is inferred: from the layouts whether the
/// layer is column- or row-parallel, from the first tensor its dtype. Throws Error(kInput) naming the layer
/// where the parts contradict each other or fit no layer.
LayerDescription replayed_layer(const std::string& name, std::span<const DumpedPart* const> parts,
                                Communicator* tp, std::optional<RecipeKind> recipe);

}  // namespace amaxscope::launch

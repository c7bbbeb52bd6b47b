#include "launch/replay_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"

namespace amaxscope::launch {

namespace {

bool fits(const LayerDescription& layer, std::span<const DumpedPart* const> parts) {
  return std::ranges::all_of(parts, [&](const DumpedPart* part) {
    return layout_of(layer, parse_tensor(part->metadata.identity.tensor).value()) == part->metadata.layout;
  });
}

std::string layouts_text(std::span<const DumpedPart* const> parts) {
  std::set<std::string> words;
  for (const DumpedPart* part : parts) {
    words.insert(fmt::format("{} {}", part->metadata.identity.tensor, to_string(part->metadata.layout)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

/// Adds what the layouts say of how the layer is split.
void split(LayerDescription& layer, std::span<const DumpedPart* const> parts) {
  const DumpMetadata& first = parts.front()->metadata;
  if (first.parallel) {
    layer.parallel = *first.parallel;
    layer.sequence_parallel = first.sequence_parallel;
    layer.gathers_before_quantizing = first.gathers_before_quantizing;
    AMAXSCOPE_CHECK(fits(layer, parts), ErrorCode::kInput,
                    "layer {} is said to be {}-parallel over {} ranks, but its tensors lie as {}", layer.name,
                    to_string(layer.parallel), layer.tp_group == nullptr ? 1 : layer.tp_group->size(),
                    layouts_text(parts));
    return;
  }
  for (const ParallelMode mode : {ParallelMode::kNone, ParallelMode::kColumn, ParallelMode::kRow}) {
    for (const bool sequence : {false, true}) {
      layer.parallel = mode;
      layer.sequence_parallel = sequence;
      if (fits(layer, parts)) return;
    }
  }
  throw Error(
      ErrorCode::kInput,
      fmt::format("layer {}: no column- or row-parallel layer has tensors that lie as {} over {} ranks",
                  layer.name, layouts_text(parts), layer.tp_group == nullptr ? 1 : layer.tp_group->size()));
}

RecipeKind recipe_of(const std::string& name, std::span<const DumpedPart* const> parts) {
  const std::string& word = parts.front()->metadata.recipe;
  const std::optional<RecipeKind> recipe = parse_recipe(word);
  AMAXSCOPE_CHECK(recipe.has_value(), ErrorCode::kInput,
                  "layer {}: the dump says recipe \"{}\", which is unknown; give --recipe", name, word);
  return *recipe;
}

}  // namespace

LayerDescription replayed_layer(const std::string& name, std::span<const DumpedPart* const> parts,
                                Communicator* tp, std::optional<RecipeKind> recipe) {
  for (const DumpedPart* part : parts) {
    const DumpMetadata& one = part->metadata;
    const DumpMetadata& first = parts.front()->metadata;
    AMAXSCOPE_CHECK(
        one.parallel == first.parallel && one.sequence_parallel == first.sequence_parallel &&
            one.gathers_before_quantizing == first.gathers_before_quantizing && one.recipe == first.recipe &&
            one.layer_number == first.layer_number,
        ErrorCode::kInput,
        "layer {}: the dumps of ranks {} and {} say different things of its parallel mode, number or "
        "recipe",
        name, first.rank, one.rank);
  }
  const bool tensor_parallel =
      std::ranges::any_of(parts, [](const DumpedPart* part) { return part->metadata.tp_ranks.size() > 1; });
  LayerDescription layer;
  layer.name = name;
  layer.number = parts.front()->metadata.layer_number;
  layer.tp_group = tensor_parallel ? tp : nullptr;
  layer.recipe = recipe ? *recipe : recipe_of(name, parts);
  layer.compute_dtype = parts.front()->metadata.compute_dtype.value_or(parts.front()->dtype);
  split(layer, parts);
  return layer;
}

}  // namespace amaxscope::launch

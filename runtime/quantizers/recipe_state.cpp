#include "runtime/quantizers/recipe_state.hpp"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// What a history does not say of its slot, as three words: scale, how it came about, whether from a history.
Tensor words_of(const DelayedScalingState::Slot& slot) {
  return Tensor::of<std::uint32_t>(
      {std::bit_cast<std::uint32_t>(slot.scale), static_cast<std::uint32_t>(slot.clamp),
       static_cast<std::uint32_t>(slot.has_history)},
      {3});
}

std::string history_name(const std::string& slot) { return fmt::format("delayed/{}/history", slot); }
std::string words_name(const std::string& slot) { return fmt::format("delayed/{}/scale", slot); }
std::string stream_name(const std::string& tensor) { return fmt::format("random/{}", tensor); }

TensorView view_of(const std::vector<std::uint32_t>& history) {
  return {history.data(), DType::kU32, {static_cast<std::int64_t>(history.size())}};
}

Tensor place_of(const Nvfp4Quantizer& stream) { return Tensor::of<std::uint64_t>({stream.calls()}, {1}); }

DelayedScalingState::Slot read_slot(const SafetensorsFile& file, const DelayedScalingState::Slot& now) {
  DelayedScalingState::Slot slot = now;
  const Tensor words = file.read(stored_like(file, words_name(now.name), words_of(now)));
  const auto word = words.values<std::uint32_t>();
  slot.scale = std::bit_cast<float>(word[0]);
  AMAXSCOPE_CHECK(word[1] <= static_cast<std::uint32_t>(ScaleClamp::kScaleClamped), ErrorCode::kInput,
                  "{}: {} has {} as its second word; 0 to {} are known", file.path().string(),
                  words_name(now.name), word[1], static_cast<int>(ScaleClamp::kScaleClamped));
  slot.clamp = static_cast<ScaleClamp>(word[1]);
  slot.has_history = word[2] != 0;
  const Tensor history = file.read(stored_like(file, history_name(now.name), view_of(now.history)));
  slot.history.assign(history.values<std::uint32_t>().begin(), history.values<std::uint32_t>().end());
  return slot;
}

}  // namespace

const StoredTensor& stored_like(const SafetensorsFile& file, const std::string& name,
                                const TensorView& wanted) {
  const StoredTensor* const stored = file.find(name);
  AMAXSCOPE_CHECK(stored != nullptr, ErrorCode::kInput,
                  "{}: has no tensor {}; it is of another model or recipe", file.path().string(), name);
  AMAXSCOPE_CHECK(stored->dtype == wanted.dtype() && stored->shape() == wanted.shape(), ErrorCode::kInput,
                  "{}: {} is {} of shape {}, the training has {} of shape {}", file.path().string(), name,
                  stored->type, to_string(stored->shape()), to_string(wanted.dtype()),
                  to_string(wanted.shape()));
  return *stored;
}

void add_recipe_state(const RecipeParts& parts, std::vector<NamedTensor>& tensors, std::deque<Tensor>& kept) {
  for (std::size_t i = 0; parts.delayed != nullptr && i < parts.delayed->size(); ++i) {
    const DelayedScalingState::Slot& slot = parts.delayed->slot(i);
    kept.push_back(words_of(slot));
    tensors.push_back({words_name(slot.name), std::as_const(kept.back()).view()});
    tensors.push_back({history_name(slot.name), view_of(slot.history)});
  }
  for (const auto& [tensor, stream] : parts.streams) {
    kept.push_back(place_of(*stream));
    tensors.push_back({stream_name(tensor), std::as_const(kept.back()).view()});
  }
}

RecipeState read_recipe_state(const SafetensorsFile& file, const RecipeParts& parts) {
  RecipeState result;
  for (std::size_t i = 0; parts.delayed != nullptr && i < parts.delayed->size(); ++i) {
    result.slots.push_back(read_slot(file, parts.delayed->slot(i)));
  }
  for (const auto& [tensor, stream] : parts.streams) {
    const Tensor place = file.read(stored_like(file, stream_name(tensor), place_of(*stream)));
    result.places.push_back(place.values<std::uint64_t>()[0]);
  }
  return result;
}

void restore_recipe_state(RecipeState state, const RecipeParts& parts) {
  for (std::size_t i = 0; i < state.slots.size(); ++i) parts.delayed->restore(i, std::move(state.slots[i]));
  auto place = state.places.begin();
  for (const auto& [tensor, stream] : parts.streams) stream->set_calls(*place++);
}

}  // namespace amaxscope

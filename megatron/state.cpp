#include "megatron/state.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <deque>
#include <fstream>
#include <utility>

#include "core/error.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope::megatron {

namespace fs = std::filesystem;

namespace {

constexpr const char* kNewest = "newest";

/// What a history does not say of its slot, as three words: scale, how it came about, whether from a history.
Tensor words_of(const DelayedScalingState::Slot& slot) {
  return Tensor::of<std::uint32_t>(
      {std::bit_cast<std::uint32_t>(slot.scale), static_cast<std::uint32_t>(slot.clamp),
       static_cast<std::uint32_t>(slot.has_history)},
      {3});
}

std::string history_name(const std::string& slot) { return fmt::format("delayed/{}/history", slot); }
std::string words_name(const std::string& slot) { return fmt::format("delayed/{}/scale", slot); }

TensorView view_of(const std::vector<std::uint32_t>& history) {
  return {history.data(), DType::kU32, {static_cast<std::int64_t>(history.size())}};
}

std::string stream_name(const std::string& slot) { return fmt::format("random/{}", slot); }

const RandomStreams& streams_of(const TrainingParts& parts) {
  static const RandomStreams kNone;
  return parts.streams == nullptr ? kNone : *parts.streams;
}

Tensor place_of(const Nvfp4Quantizer& stream) { return Tensor::of<std::uint64_t>({stream.calls()}, {1}); }

/// A tensor of the trainer and its name in the file.
struct Part {
  std::string name;
  MutableTensorView view;
};

std::vector<Part> tensors_of(const TrainingParts& parts) {
  std::vector<Part> result;
  for (std::size_t i = 0; i < parts.parameters.size(); ++i) {
    Parameter& parameter = *parts.parameters[i];
    result.push_back({fmt::format("master/{}", parameter.name), parameter.master.mutable_view()});
    result.push_back({fmt::format("adam/first/{}", parameter.name), parts.adam.first_moment(i)});
    result.push_back({fmt::format("adam/second/{}", parameter.name), parts.adam.second_moment(i)});
  }
  return result;
}

const StoredTensor& fitting(const SafetensorsFile& file, const std::string& name, const TensorView& wanted) {
  const StoredTensor* const stored = file.find(name);
  AMAXSCOPE_CHECK(stored != nullptr, ErrorCode::kInput,
                  "{}: has no tensor {}; it is of another model or recipe", file.path().string(), name);
  AMAXSCOPE_CHECK(stored->dtype == wanted.dtype() && stored->shape() == wanted.shape(), ErrorCode::kInput,
                  "{}: {} is {} of shape {}, the training has {} of shape {}", file.path().string(), name,
                  stored->type, to_string(stored->shape()), to_string(wanted.dtype()),
                  to_string(wanted.shape()));
  return *stored;
}

void require_identity(const SafetensorsFile& file, const StateIdentity& identity) {
  for (const auto& [key, value] : identity) {
    const std::string& saved = file.metadata_text(key);
    AMAXSCOPE_CHECK(saved == value, ErrorCode::kInput, "{}: was saved with {} {}, this training has {}",
                    file.path().string(), key, saved, value);
  }
}

DelayedScalingState::Slot read_slot(const SafetensorsFile& file, const DelayedScalingState::Slot& now) {
  DelayedScalingState::Slot slot = now;
  const Tensor words = file.read(fitting(file, words_name(now.name), words_of(now)));
  const auto word = words.values<std::uint32_t>();
  slot.scale = std::bit_cast<float>(word[0]);
  AMAXSCOPE_CHECK(word[1] <= static_cast<std::uint32_t>(ScaleClamp::kScaleClamped), ErrorCode::kInput,
                  "{}: {} has {} as its second word; 0 to {} are known", file.path().string(),
                  words_name(now.name), word[1], static_cast<int>(ScaleClamp::kScaleClamped));
  slot.clamp = static_cast<ScaleClamp>(word[1]);
  slot.has_history = word[2] != 0;
  const Tensor history = file.read(fitting(file, history_name(now.name), view_of(now.history)));
  slot.history.assign(history.values<std::uint32_t>().begin(), history.values<std::uint32_t>().end());
  return slot;
}

}  // namespace

fs::path state_file(const fs::path& directory, int world_rank) {
  return directory / fmt::format("rank_{}.safetensors", world_rank);
}

void write_state(const fs::path& file, const TrainingParts& parts, std::int64_t iteration,
                 const StateIdentity& identity) {
  std::vector<NamedTensor> tensors;
  for (const Part& part : tensors_of(parts)) tensors.push_back({part.name, part.view});
  std::deque<Tensor> words;  // what the views of slots borrow
  for (std::size_t i = 0; parts.delayed != nullptr && i < parts.delayed->size(); ++i) {
    const DelayedScalingState::Slot& slot = parts.delayed->slot(i);
    words.push_back(words_of(slot));
    tensors.push_back({words_name(slot.name), std::as_const(words.back()).view()});
    tensors.push_back({history_name(slot.name), view_of(slot.history)});
  }
  for (const auto& [slot, stream] : streams_of(parts)) {
    words.push_back(place_of(*stream));
    tensors.push_back({stream_name(slot), std::as_const(words.back()).view()});
  }
  StateIdentity metadata = identity;
  metadata["iteration"] = fmt::format("{}", iteration);
  metadata["adam_steps"] = fmt::format("{}", parts.adam.steps());
  write_safetensors(file, tensors, metadata);
}

std::int64_t read_state(const fs::path& path, const TrainingParts& parts, const StateIdentity& identity) {
  const SafetensorsFile file(path);
  require_identity(file, identity);
  const std::int64_t iteration = file.metadata_count("iteration");
  const std::int64_t adam_steps = file.metadata_count("adam_steps");
  // Everything is read before anything is changed.
  const std::vector<Part> targets = tensors_of(parts);
  std::vector<Tensor> values;
  for (const Part& target : targets) values.push_back(file.read(fitting(file, target.name, target.view)));
  std::vector<DelayedScalingState::Slot> slots;
  for (std::size_t i = 0; parts.delayed != nullptr && i < parts.delayed->size(); ++i) {
    slots.push_back(read_slot(file, parts.delayed->slot(i)));
  }
  std::vector<std::uint64_t> places;
  for (const auto& [slot, stream] : streams_of(parts)) {
    const Tensor place = file.read(fitting(file, stream_name(slot), place_of(*stream)));
    places.push_back(place.values<std::uint64_t>()[0]);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const TensorView from = std::as_const(values[i]).view();
    if (from.bytes() != 0) std::memcpy(targets[i].view.data(), from.data(), from.bytes());
  }
  for (std::size_t i = 0; i < slots.size(); ++i) parts.delayed->restore(i, std::move(slots[i]));
  auto place = places.begin();
  for (const auto& [slot, stream] : streams_of(parts)) stream->set_calls(*place++);
  parts.adam.set_steps(adam_steps);
  for (Parameter* const parameter : parts.parameters) parameter->refresh_compute();
  return iteration;
}

std::int64_t iteration_of_state(const fs::path& path) {
  return SafetensorsFile(path).metadata_count("iteration");
}

fs::path state_directory(const fs::path& directory, std::int64_t iteration) {
  return directory / fmt::format("iter_{:06}", iteration);
}

void mark_newest_state(const fs::path& directory, std::int64_t iteration) {
  OutputFile file(directory / kNewest);
  file.write(state_directory({}, iteration).string() + "\n");
  file.commit();
}

fs::path find_state(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(state_file(directory, 0), ignored)) return directory;
  std::ifstream file(directory / kNewest);
  std::string name;
  AMAXSCOPE_CHECK(std::getline(file, name) && !name.empty(), ErrorCode::kInput,
                  "{}: holds neither the state of a training ({}) nor the name of one (\"{}\")",
                  directory.string(), state_file({}, 0).string(), kNewest);
  return directory / name;
}

}  // namespace amaxscope::megatron

#include "megatron/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <utility>

#include "core/error.hpp"
#include "runtime/quantizers/recipe_state.hpp"

namespace amaxscope::megatron {

namespace fs = std::filesystem;

namespace {

constexpr const char* kNewest = "newest";
constexpr std::string_view kStatePrefix = "iter_";
constexpr std::uint64_t kMostOfAName = 4096;  ///< bytes

RecipeParts recipe_parts_of(const TrainingParts& parts) {
  RecipeParts result{.delayed = parts.delayed};
  if (parts.streams != nullptr) result.streams = *parts.streams;
  return result;
}

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

void require_identity(const SafetensorsFile& file, const StateIdentity& identity) {
  for (const auto& [key, value] : identity) {
    const std::string& saved = file.metadata_text(key);
    AMAXSCOPE_CHECK(saved == value, ErrorCode::kInput, "{}: was saved with {} {}, this training has {}",
                    file.path().string(), key, saved, value);
  }
}

}  // namespace

fs::path state_file(const fs::path& directory, int world_rank) {
  return directory / fmt::format("rank_{}.safetensors", world_rank);
}

void write_state(const fs::path& file, const TrainingParts& parts, std::int64_t iteration,
                 const StateIdentity& identity) {
  std::vector<NamedTensor> tensors;
  for (const Part& part : tensors_of(parts)) tensors.push_back({part.name, part.view});
  std::deque<Tensor> kept;
  add_recipe_state(recipe_parts_of(parts), tensors, kept);
  StateIdentity metadata = identity;
  metadata["iteration"] = fmt::format("{}", iteration);
  metadata["adam_steps"] = fmt::format("{}", parts.adam.steps());
  write_safetensors(file, tensors, metadata, Durability::kPowerCut);
}

std::int64_t read_state(const fs::path& path, const TrainingParts& parts, const StateIdentity& identity) {
  const SafetensorsFile file(path);
  require_identity(file, identity);
  const std::int64_t iteration = file.metadata_count("iteration");
  const std::int64_t adam_steps = file.metadata_count("adam_steps");
  // Everything is read before anything is changed.
  const std::vector<Part> targets = tensors_of(parts);
  std::vector<Tensor> values;
  for (const Part& target : targets) values.push_back(file.read(stored_like(file, target.name, target.view)));
  const RecipeParts recipe = recipe_parts_of(parts);
  RecipeState of_recipe = read_recipe_state(file, recipe);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const TensorView from = std::as_const(values[i]).view();
    if (from.bytes() != 0) std::memcpy(targets[i].view.data(), from.data(), from.bytes());
  }
  restore_recipe_state(std::move(of_recipe), recipe);
  parts.adam.set_steps(adam_steps);
  for (Parameter* const parameter : parts.parameters) parameter->refresh_compute();
  return iteration;
}

std::int64_t iteration_of_state(const fs::path& path) {
  return SafetensorsFile(path).metadata_count("iteration");
}

fs::path state_directory(const fs::path& directory, std::int64_t iteration) {
  return directory / fmt::format("{}{:06}", kStatePrefix, iteration);
}

void mark_newest_state(const fs::path& directory, std::int64_t iteration) {
  OutputFile file(directory / kNewest);
  file.write(state_directory({}, iteration).string() + "\n");
  // With the folder in which the state's own was made: what is named here is there after a power cut, too.
  file.commit(Durability::kPowerCut);
}

fs::path find_state(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(state_file(directory, 0), ignored)) return directory;
  const fs::path newest = directory / kNewest;
  AMAXSCOPE_CHECK(fs::exists(newest, ignored), ErrorCode::kInput,
                  "{}: holds neither the state of a training ({}) nor the name of one (\"{}\")",
                  directory.string(), state_file({}, 0).string(), kNewest);
  std::string name = read_bounded(newest, kMostOfAName);
  name.resize(std::min(name.find('\n'), name.size()));
  // A folder made here, by its number: no path that leads elsewhere.
  std::int64_t iteration = -1;
  const char* const end = name.data() + name.size();
  if (name.starts_with(kStatePrefix))
    static_cast<void>(std::from_chars(name.data() + kStatePrefix.size(), end, iteration));
  AMAXSCOPE_CHECK(iteration >= 0 && name == state_directory({}, iteration).string(), ErrorCode::kInput,
                  "{}: names \"{}\"; the folder of a state here is called {}N", newest.string(), name,
                  kStatePrefix);
  return directory / name;
}

}  // namespace amaxscope::megatron

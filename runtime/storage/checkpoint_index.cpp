#include "runtime/storage/checkpoint_index.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "core/error.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope {

namespace {

using Json = nlohmann::json;

/// The index as JSON: an object of objects of scalars, and nothing deeper.
Json parse_index(const std::string& text, const std::string& source) {
  if (const std::string excess = json_excess(text, {.depth = 4}); !excess.empty())
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", source, excess));
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t inspect = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      AMAXSCOPE_CHECK(keys.back().insert(value.get<std::string>()).second, ErrorCode::kInput,
                      "{}: has the key \"{}\" twice", source, value.get<std::string>());
    }
    return true;
  };
  Json index;
  try {
    index = Json::parse(text, inspect);
  } catch (const Json::parse_error& error) {
    throw Error(ErrorCode::kInput, fmt::format("{}: is not JSON at byte {}", source, error.byte));
  } catch (const Json::out_of_range&) {  // the grammar is right, the value has no double
    throw Error(ErrorCode::kInput, fmt::format("{}: has a number that is too large", source));
  }
  AMAXSCOPE_CHECK(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
                  ErrorCode::kInput, "{}: has no weight_map of tensors to files; it is no checkpoint's index",
                  source);
  return index;
}

}  // namespace

ShardedCheckpoint::ShardedCheckpoint(const std::filesystem::path& index_path) : path_(index_path) {
  const std::string source = path_.string();
  const InputFile file(path_);
  AMAXSCOPE_CHECK(file.size() <= kMaxIndex, ErrorCode::kInput, "{}: has {} bytes, an index has at most {}",
                  source, file.size(), kMaxIndex);
  const Json index = parse_index(file.read_text(0, file.size()), source);
  std::unordered_map<const SafetensorsFile*, std::unordered_map<std::string_view, const StoredTensor*>>
      by_name;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    AMAXSCOPE_CHECK(shard.is_string(), ErrorCode::kInput, "{}: tensor \"{}\" is mapped to {}, not to a file",
                    source, name, shard.type_name());
    const auto file_name = shard.get<std::string>();
    AMAXSCOPE_CHECK(
        file_name.ends_with(".safetensors") && file_name.find('/') == std::string::npos &&
            file_name.find('\0') == std::string::npos,
        ErrorCode::kInput,
        "{}: tensor \"{}\" is said to be in \"{}\"; a .safetensors file in the folder of the index is "
        "needed",
        source, name, file_name);
    std::unique_ptr<SafetensorsFile>& opened = files_[file_name];
    if (opened == nullptr) {
      opened = std::make_unique<SafetensorsFile>(path_.parent_path() / file_name);
      for (const StoredTensor& tensor : opened->tensors())
        by_name[opened.get()].emplace(tensor.name, &tensor);
    }
    const auto found = by_name[opened.get()].find(name);
    AMAXSCOPE_CHECK(found != by_name[opened.get()].end(), ErrorCode::kInput, "{}: tensor \"{}\" is not in {}",
                    source, name, file_name);
    places_.push_back({opened.get(), found->second});
    tensors_.push_back(*found->second);
    tensors_.back().index = tensors_.size() - 1;
  }
  if (!index.contains("metadata")) return;
  for (const auto& [key, value] : index["metadata"].items()) {
    metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
}

void ShardedCheckpoint::read_checked(const StoredTensor& tensor, std::int64_t first,
                                     const MutableTensorView& out) const {
  const Place& place = places_[tensor.index];
  place.file->read_elements(*place.tensor, first, out);
}

}  // namespace amaxscope

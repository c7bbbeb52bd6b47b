// What of a session survives a restart.
#include <fmt/format.h>

#include <map>

#include "core/error.hpp"
#include "kernels/content_hash.hpp"
#include "runtime/session_impl.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kFormat = "amaxscope session state 1";

/// Names as well as words: a file whose names were exchanged is another state.
std::string digest_of(const std::map<std::string, std::vector<std::uint64_t>>& words) {
  std::uint64_t digest = 0;
  for (const auto& [name, values] : words) {
    const TensorView text(name.data(), DType::kU8, {static_cast<std::int64_t>(name.size())});
    const TensorView data(values.data(), DType::kU64, {static_cast<std::int64_t>(values.size())});
    digest = combine_hashes(combine_hashes(digest, content_hash(text)), content_hash(data));
  }
  return fmt::format("{:016x}", digest);
}

std::string feature_prefix(std::string_view section, std::size_t index, std::string_view feature) {
  return fmt::format("{}/{}/{}/", section, index, feature);
}

}  // namespace

std::filesystem::path DebugSession::Impl::state_file(const std::filesystem::path& dir) const {
  return dir / fmt::format("amaxscope_session_rank_{}.safetensors", own_rank());
}

void DebugSession::Impl::save_state(const std::filesystem::path& dir) const {
  std::map<std::string, std::vector<std::uint64_t>> words;
  for (const ActiveConfig::Section& section : active_->sections) {
    for (std::size_t i = 0; i < section.features.size(); ++i) {
      FeatureState state;
      section.features[i]->save_state(state);
      const std::string prefix = feature_prefix(section.config->name, i, section.features[i]->config().name);
      for (auto& [name, values] : state) words.emplace(prefix + name, std::move(values));
    }
  }
  std::vector<NamedTensor> tensors;
  tensors.reserve(words.size());
  for (const auto& [name, values] : words) {
    tensors.push_back(
        {name, TensorView(values.data(), DType::kU64, {static_cast<std::int64_t>(values.size())})});
  }
  const std::string digest = digest_of(words);
  write_safetensors(state_file(dir), tensors,
                    {{"format", std::string(kFormat)},
                     {"iteration", fmt::format("{}", iteration)},
                     {"config", active_->config.text.empty() ? "none" : text_digest(active_->config.text)},
                     {"world", fmt::format("{}", groups_.world == nullptr ? 1 : groups_.world->size())},
                     {"digest", digest}},
                    Durability::kPowerCut);
}

void DebugSession::Impl::load_state(const std::filesystem::path& dir) {
  AMAXSCOPE_CHECK(!stepped_, ErrorCode::kUsage, "the state of a session is loaded before its first step");
  const SafetensorsFile file(state_file(dir));
  const auto expect = [&](const std::string& key, const std::string& wanted) {
    const std::string& found = file.metadata_text(key);
    AMAXSCOPE_CHECK(found == wanted, ErrorCode::kInput, "{}: {} is {}, this run has {}", file.path().string(),
                    key, found, wanted);
  };
  expect("format", std::string(kFormat));
  expect("config", active_->config.text.empty() ? "none" : text_digest(active_->config.text));
  expect("world", fmt::format("{}", groups_.world == nullptr ? 1 : groups_.world->size()));
  std::map<std::string, std::vector<std::uint64_t>> words;
  for (const StoredTensor& tensor : file.tensors()) {
    AMAXSCOPE_CHECK(tensor.dtype == DType::kU64, ErrorCode::kInput, "{}: {} is {}, expected U64",
                    file.path().string(), tensor.name, tensor.type);
    const Tensor values = file.read(tensor);
    const auto span = values.values<std::uint64_t>();
    words.emplace(tensor.name, std::vector<std::uint64_t>(span.begin(), span.end()));
  }
  expect("digest", digest_of(words));
  iteration = file.metadata_count("iteration");
  for (const ActiveConfig::Section& section : active_->sections) {
    for (std::size_t i = 0; i < section.features.size(); ++i) {
      const std::string prefix = feature_prefix(section.config->name, i, section.features[i]->config().name);
      FeatureState state;
      for (auto at = words.lower_bound(prefix); at != words.end() && at->first.starts_with(prefix); ++at) {
        state.emplace(at->first.substr(prefix.size()), at->second);
      }
      section.features[i]->load_state(state);
    }
  }
  active_->registrations_changed = true;
  if (tp_amax_ != nullptr) guarded_.guard(groups_.tp, "amax").set_iteration(iteration);
}

}  // namespace amaxscope

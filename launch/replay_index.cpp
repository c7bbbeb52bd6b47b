#include "launch/replay_index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "core/error.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope::launch {

namespace {

using Json = nlohmann::json;
constexpr std::string_view kOriginal = "high_precision";

/// R of "rank_R".
std::optional<int> rank_of_folder(const std::string& name) {
  constexpr std::string_view kPrefix = "rank_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int rank = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, rank);
  if (error != std::errc() || stop != end || rank < 0 || name != fmt::format("rank_{}", rank))
    return std::nullopt;
  return rank;
}

std::set<int> rank_folders(const std::filesystem::path& folder) {
  std::set<int> ranks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::optional<int> rank = rank_of_folder(entry.path().filename().string());
    if (rank && entry.is_directory()) ranks.insert(*rank);
  }
  return ranks;
}

/// As the order of the replay has it; the iteration is common.
auto order_of(const DumpIdentity& identity) {
  return std::tuple(identity.microbatch, static_cast<int>(identity.phase), identity.layer, identity.tensor,
                    identity.occurrence);
}

}  // namespace

std::filesystem::path find_dump(const std::filesystem::path& directory) {
  AMAXSCOPE_CHECK(std::filesystem::is_directory(directory), ErrorCode::kInput,
                  "{}: there is no such directory", directory.string());
  for (const std::filesystem::path& folder : {directory, directory / "tensor_dumps"}) {
    const std::set<int> ranks = rank_folders(folder);
    if (ranks.empty()) continue;
    const int last = *ranks.rbegin();
    for (int rank = 0; rank < last; ++rank) {
      AMAXSCOPE_CHECK(ranks.contains(rank), ErrorCode::kInput,
                      "{}: has a folder rank_{}, but none of rank_{}", folder.string(), last, rank);
    }
    return folder;
  }
  throw Error(
      ErrorCode::kInput,
      fmt::format("{}: holds no dump: neither it nor tensor_dumps in it has folders rank_0, rank_1, ...",
                  directory.string()));
}

int count_dump_ranks(const std::filesystem::path& dump) {
  return static_cast<int>(rank_folders(dump).size());
}

RankDump read_rank_dump(const std::filesystem::path& dump, int rank) {
  const std::filesystem::path folder = dump / fmt::format("rank_{}", rank);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  RankDump result;
  std::map<DumpIdentity, std::string> seen;
  for (const std::filesystem::path& path : files) {
    const SafetensorsFile file(path);
    DumpedPart part;
    part.metadata = parse_dump_metadata(file.metadata(), rank, path.string());
    part.file = std::filesystem::relative(path, folder).string();
    const auto [first, fresh] = seen.emplace(part.metadata.identity, part.file);
    AMAXSCOPE_CHECK(
        fresh, ErrorCode::kInput,
        "{}: is the {} of layer {} at iteration {}, micro-batch {}, {}, as {} is; a second one says "
        "\"occurrence\": \"1\"",
        path.string(), part.metadata.identity.tensor, part.metadata.identity.layer,
        part.metadata.identity.iteration, part.metadata.identity.microbatch,
        to_string(part.metadata.identity.phase), first->second);
    const StoredTensor* original = file.find(kOriginal);
    if (original == nullptr) {
      ++result.without_original;
      continue;
    }
    AMAXSCOPE_CHECK(
        original->dtype == DType::kF32 || original->dtype == DType::kF16 || original->dtype == DType::kBF16,
        ErrorCode::kInput, "{}: {} is {}; F32, F16 and BF16 can be replayed", path.string(), kOriginal,
        original->type);
    part.dtype = *original->dtype;
    part.shape = original->shape();
    result.parts.push_back(std::move(part));
  }
  return result;
}

std::string to_text(const RankDump& dump) {
  Json parts = Json::array();
  for (const DumpedPart& part : dump.parts) {
    parts.push_back(
        {{"metadata", to_metadata(part.metadata)},
         {"dtype", static_cast<int>(part.dtype)},
         {"shape", std::vector<std::int64_t>(part.shape.extents().begin(), part.shape.extents().end())}});
  }
  const Json json = {{"parts", parts}, {"without_original", dump.without_original}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankDump rank_dump_from(const std::string& text) {
  const Json json = Json::parse(text);
  RankDump dump;
  dump.without_original = json.at("without_original");
  for (const Json& part : json.at("parts")) {
    const std::map<std::string, std::string> metadata = part.at("metadata");
    const std::vector<std::int64_t> shape = part.at("shape");
    dump.parts.push_back(
        {.metadata = parse_dump_metadata(metadata, std::stoi(metadata.at("rank")), "the dump"),
         .file = {},
         .dtype = static_cast<DType>(part.at("dtype").get<int>()),
         .shape = Shape(std::span<const std::int64_t>(shape))});
  }
  return dump;
}

ReplayIndex::ReplayIndex(std::vector<RankDump> by_rank) : by_rank_(std::move(by_rank)) {
  find_groups();
  std::map<DumpIdentity, Parts> merged;
  for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
    without_original_ += by_rank_[rank].without_original;
    for (const DumpedPart& part : by_rank_[rank].parts) {
      merged[part.metadata.identity][static_cast<int>(rank)] = &part;
    }
  }
  for (auto& [identity, parts] : merged)
    tensors_[identity.iteration].emplace_back(identity, std::move(parts));
  for (auto& [iteration, tensors] : tensors_) {
    std::ranges::sort(tensors,
                      [](const auto& a, const auto& b) { return order_of(a.first) < order_of(b.first); });
  }
}

void ReplayIndex::find_groups() {
  const int world = static_cast<int>(by_rank_.size());
  for (int rank = 0; rank < world; ++rank) groups_.push_back({{rank}, {rank}, {rank}});
  // A rank belongs to the widest group that it, or another rank of that group, speaks of: one that dumped
  // nothing of its own is still needed by the others.
  using Member = std::vector<int> ReplayGroups::*;
  const auto claim = [&](Member member, const std::vector<int>& ranks, int by, std::string_view what) {
    for (const int rank : ranks) {
      AMAXSCOPE_CHECK(rank < world, ErrorCode::kInput,
                      "the dump of rank {} says that its {} are {}, but there are {} folders", by, what,
                      fmt::join(ranks, ","), world);
      std::vector<int>& known = groups_[static_cast<std::size_t>(rank)].*member;
      if (known == ranks || ranks.size() == 1) continue;
      AMAXSCOPE_CHECK(known.size() == 1, ErrorCode::kInput,
                      "the dump of rank {} says that rank {} belongs to the {} {}, others say {}", by, rank,
                      what, fmt::join(ranks, ","), fmt::join(known, ","));
      known = ranks;
    }
  };
  for (int rank = 0; rank < world; ++rank) {
    for (const DumpedPart& part : by_rank_[static_cast<std::size_t>(rank)].parts) {
      claim(&ReplayGroups::tp, part.metadata.tp_ranks, rank, "tp_ranks");
      claim(&ReplayGroups::dp, part.metadata.dp_ranks, rank, "dp_ranks");
      claim(&ReplayGroups::stage, part.metadata.stage_ranks, rank, "stage_ranks");
    }
  }
}

bool ReplayIndex::ranks_stand_alone() const {
  if (std::ranges::any_of(groups_, [](const ReplayGroups& own) { return own.stage.size() > 1; }))
    return false;
  std::map<std::string, std::size_t> holder;
  for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
    for (const DumpedPart& part : by_rank_[rank].parts) {
      if (holder.try_emplace(part.metadata.identity.layer, rank).first->second != rank) return true;
    }
  }
  return false;
}

std::vector<std::int64_t> ReplayIndex::iterations() const {
  std::vector<std::int64_t> result;
  for (const auto& [iteration, tensors] : tensors_) result.push_back(iteration);
  return result;
}

std::map<std::string, std::vector<const DumpedPart*>> ReplayIndex::layers(int rank) const {
  std::map<std::string, std::vector<const DumpedPart*>> result;
  for (const int member : groups(rank).stage) {
    for (const DumpedPart& part : by_rank_[static_cast<std::size_t>(member)].parts) {
      if (!part.metadata.observed) result[part.metadata.identity.layer].push_back(&part);
    }
  }
  return result;
}

}  // namespace amaxscope::launch

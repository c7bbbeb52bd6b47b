#include "runtime/storage/dump_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "core/error.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope {

namespace {

constexpr std::array kPhases = {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kEval};
constexpr std::array kLayouts = {Layout::kReplicated, Layout::kShard0, Layout::kShard1, Layout::kPartial};
constexpr std::array kModes = {ParallelMode::kNone, ParallelMode::kColumn, ParallelMode::kRow};
constexpr std::array kDTypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

std::string escaped(std::string_view text, bool keep_dots) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && i > 0 && keep_dots);
    if (plain) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

/// 128 bits of a name, 32 hex digits.
std::string name_hash(const std::string& name) {
  return text_digest(name) + text_digest("amaxscope " + name);
}

/// Reads one file's metadata; every refusal names the file, the key, the value and what is allowed.
class Reader {
 public:
  Reader(const std::map<std::string, std::string>& metadata, const std::string& source)
      : metadata_(metadata), source_(source) {}

  [[nodiscard]] const std::string* find(std::string_view key) const {
    const auto found = metadata_.find(std::string(key));
    return found == metadata_.end() ? nullptr : &found->second;
  }

  [[nodiscard]] std::string text(std::string_view key) const {
    const std::string* value = find(key);
    AMAXSCOPE_CHECK(value != nullptr, ErrorCode::kInput,
                    "{}: its metadata has no \"{}\"; a dumped tensor says its layer, tensor and iteration",
                    source_, key);
    return *value;
  }

  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t most) const {
    const std::string value = text(key);
    std::int64_t number = -1;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    AMAXSCOPE_CHECK(error == std::errc() && stop == end && number >= 0 && number <= most, ErrorCode::kInput,
                    "{}: its metadata has {} \"{}\", a number from 0 to {} is needed", source_, key, value,
                    most);
    return number;
  }

  [[nodiscard]] int small_count(std::string_view key) const {
    return static_cast<int>(count(key, std::numeric_limits<int>::max()));
  }

  template <class T, std::size_t N>
  [[nodiscard]] T word(std::string_view key, const std::array<T, N>& allowed) const {
    const std::string value = text(key);
    const auto found = std::ranges::find_if(allowed, [&](T one) { return to_string(one) == value; });
    if (found == allowed.end()) {
      std::vector<std::string_view> words;
      for (const T one : allowed) words.push_back(to_string(one));
      throw Error(ErrorCode::kInput, fmt::format("{}: its metadata has {} \"{}\"; allowed are {}", source_,
                                                 key, value, fmt::join(words, ", ")));
    }
    return *found;
  }

  /// World ranks, ascending and each once; this rank alone when the key is not there.
  [[nodiscard]] std::vector<int> ranks(std::string_view key, int rank) const {
    const std::string* value = find(key);
    if (value == nullptr) return {rank};
    std::vector<int> result;
    std::string_view rest = *value;
    bool valid = true;
    while (valid) {
      int number = -1;
      const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      valid = error == std::errc() && number >= 0 && (result.empty() || number > result.back());
      if (!valid) break;
      result.push_back(number);
      rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
      if (rest.empty()) break;
      valid = rest.front() == ',';
      rest.remove_prefix(1);
    }
    AMAXSCOPE_CHECK(
        valid && std::ranges::find(result, rank) != result.end(), ErrorCode::kInput,
        "{}: its metadata has {} \"{}\"; ascending ranks with commas between them are needed, rank {} "
        "among them",
        source_, key, *value, rank);
    return result;
  }

 private:
  const std::map<std::string, std::string>& metadata_;
  const std::string& source_;
};

}  // namespace

std::map<std::string, std::string> to_metadata(const DumpMetadata& dump) {
  const auto list = [](const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); };
  std::map<std::string, std::string> result = dump.directions;
  result["layer"] = dump.identity.layer;
  result["tensor"] = dump.identity.tensor;
  result["iteration"] = std::to_string(dump.identity.iteration);
  result["microbatch"] = std::to_string(dump.identity.microbatch);
  result["phase"] = to_string(dump.identity.phase);
  if (dump.identity.occurrence > 0) result["occurrence"] = std::to_string(dump.identity.occurrence);
  result["rank"] = std::to_string(dump.rank);
  result["layout"] = to_string(dump.layout);
  result["tp_ranks"] = list(dump.tp_ranks);
  if (!dump.dp_ranks.empty()) result["dp_ranks"] = list(dump.dp_ranks);
  if (!dump.stage_ranks.empty()) result["stage_ranks"] = list(dump.stage_ranks);
  result["recipe"] = dump.recipe;
  result["format"] = dump.format;
  result["shape"] = dump.shape;
  if (dump.observed) result["observed"] = "true";
  if (dump.layer_number) result["layer_number"] = std::to_string(*dump.layer_number);
  if (dump.parallel) {
    result["parallel"] = to_string(*dump.parallel);
    result["sequence_parallel"] = dump.sequence_parallel ? "true" : "false";
    if (dump.gathers_before_quantizing) result["gathers_before_quantizing"] = "true";
  }
  if (dump.compute_dtype) result["compute_dtype"] = to_string(*dump.compute_dtype);
  return result;
}

DumpMetadata parse_dump_metadata(const std::map<std::string, std::string>& metadata, int rank,
                                 const std::string& source) {
  const Reader read(metadata, source);
  DumpMetadata dump;
  dump.identity.layer = read.text("layer");
  dump.identity.tensor = read.text("tensor");
  dump.identity.iteration = read.count("iteration", std::int64_t{1} << 62);
  if (read.find("microbatch") != nullptr) dump.identity.microbatch = read.small_count("microbatch");
  if (read.find("phase") != nullptr) dump.identity.phase = read.word("phase", kPhases);
  if (read.find("occurrence") != nullptr) dump.identity.occurrence = read.small_count("occurrence");
  dump.rank = read.find("rank") != nullptr ? read.small_count("rank") : rank;
  AMAXSCOPE_CHECK(dump.rank == rank, ErrorCode::kInput,
                  "{}: says that it is of rank {}, but lies in the folder of rank {}", source, dump.rank,
                  rank);
  if (read.find("layout") != nullptr) dump.layout = read.word("layout", kLayouts);
  dump.tp_ranks = read.ranks("tp_ranks", rank);
  dump.dp_ranks = read.ranks("dp_ranks", rank);
  dump.stage_ranks = read.find("stage_ranks") != nullptr ? read.ranks("stage_ranks", rank) : dump.tp_ranks;
  if (const std::string* recipe = read.find("recipe")) dump.recipe = *recipe;
  if (const std::string* format = read.find("format")) dump.format = *format;
  if (const std::string* shape = read.find("shape")) dump.shape = *shape;
  dump.observed = read.find("observed") != nullptr ? *read.find("observed") == "true"
                                                   : !parse_tensor(dump.identity.tensor).has_value();
  if (read.find("layer_number") != nullptr) dump.layer_number = read.small_count("layer_number");
  if (read.find("parallel") != nullptr) dump.parallel = read.word("parallel", kModes);
  if (const std::string* split = read.find("sequence_parallel")) dump.sequence_parallel = *split == "true";
  if (const std::string* first = read.find("gathers_before_quantizing")) {
    dump.gathers_before_quantizing = *first == "true";
  }
  if (read.find("compute_dtype") != nullptr) dump.compute_dtype = read.word("compute_dtype", kDTypes);
  return dump;
}

std::string dump_name(const DumpIdentity& identity) {
  std::string name =
      fmt::format("{}.{}.mb{}.{}", escaped(identity.layer, true), escaped(identity.tensor, false),
                  identity.microbatch, to_string(identity.phase));
  if (identity.occurrence > 0) name += fmt::format(".{}", identity.occurrence);
  // An empty layer's name would begin with the dot that hides a file.
  if (name.front() == '.') name.insert(0, "%");
  if (name.size() <= kLongestDumpName) return name;
  const std::string hash = name_hash(name);
  std::string prefix = name.substr(0, kLongestDumpName - hash.size() + 2);
  return prefix + "-" + hash;
}

std::filesystem::path dump_rank_folder(const std::filesystem::path& log_dir, int rank) {
  return log_dir / "tensor_dumps" / fmt::format("rank_{}", rank);
}

std::string dump_iteration_folder(std::int64_t iteration) { return fmt::format("iter_{:06}", iteration); }

}  // namespace amaxscope

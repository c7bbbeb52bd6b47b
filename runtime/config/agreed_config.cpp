#include "runtime/config/agreed_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "collectives/exchange.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

/// What a rank could read: the bytes, or why not.
struct ReadOutcome {
  bool readable = false;
  std::string text;  ///< or the error
};

ReadOutcome read_own(const std::optional<std::filesystem::path>& path,
                     const std::optional<std::string>& text) {
  if (text) return {true, *text};
  try {
    return {true, read_config_file(path.value())};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

void require_equal_digests(Communicator& world, const ReadOutcome& own, const std::string& agreed) {
  const std::vector<std::string> digests = all_gather_text(
      world, own.readable ? text_digest(own.text) : std::string(), {.what = "config digests"});
  std::map<std::string, std::vector<int>> others;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (!digests[rank].empty() && digests[rank] != text_digest(agreed)) {
      others[digests[rank]].push_back(world.world_ranks()[rank]);
    }
  }
  if (others.empty()) return;
  std::string message = fmt::format("the ranks were started with different configs: rank {} has digest {}",
                                    world.world_ranks()[0], text_digest(agreed));
  for (const auto& [digest, ranks] : others) {
    message +=
        fmt::format("; rank{} {} has {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), digest);
  }
  throw Error(ErrorCode::kConfig, message + "; give every rank the same file");
}

}  // namespace

Config load_agreed_config(CollectiveGuard* guard, const std::optional<std::filesystem::path>& path,
                          const std::optional<std::string>& text, const FeatureRegistry& registry) {
  const std::string source = text ? "config" : path.value().string();
  ReadOutcome own = read_own(path, text);
  if (guard == nullptr || guard->group().size() == 1) {
    if (!own.readable) throw Error(ErrorCode::kConfig, own.text);
    return load_config(own.text, source, registry);
  }

  // The deadline of this frame is what cuts a job in which some ranks were given no config at all.
  std::vector<std::uint32_t> frame(CollectiveGuard::kFramePayload);
  guard->reduce_max(frame, 0, {.what = "start with a config"});
  Communicator& world = guard->group();
  const std::string sent = (own.readable ? '1' : '0') + own.text;
  const std::string received = broadcast_text(world, sent, /*root=*/0, {.what = "config"});
  const std::string agreed = received.substr(1);
  if (received.front() == '0') throw Error(ErrorCode::kConfig, agreed);
  require_equal_digests(world, own, agreed);
  return load_config(agreed, source, registry);
}

}  // namespace amaxscope

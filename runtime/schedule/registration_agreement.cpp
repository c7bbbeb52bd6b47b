#include "runtime/schedule/registration_agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "core/fnv.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kMostLinesShown = 20;

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// "only on ranks 1, 3: decoder.layers.1.mlp.linear_fc1 activation ..." for each line that not all have.
std::string describe_difference(const Communicator& group, const std::vector<std::string>& lists) {
  std::map<std::string, std::vector<int>> holders;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    for (std::string& line : split_lines(lists[rank])) {
      holders[std::move(line)].push_back(group.world_ranks()[rank]);
    }
  }
  std::string text = "the ranks of a group registered different layers, tensors or statistics";
  std::size_t shown = 0;
  std::size_t hidden = 0;
  for (const auto& [line, ranks] : holders) {
    if (ranks.size() == lists.size()) continue;
    if (shown == kMostLinesShown) {
      ++hidden;
      continue;
    }
    ++shown;
    text +=
        fmt::format("\n  only on rank{} {}: {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), line);
  }
  if (hidden != 0) text += fmt::format("\n  and {} more", hidden);
  text += "\n  Every rank of a tensor-parallel group must build the same layers under the same config.";
  return text;
}

}  // namespace

void RegistrationList::add(std::string line) {
  lines_.push_back(std::move(line));
  sorted_ = false;
}

const std::vector<std::string>& RegistrationList::lines() const {
  if (!sorted_) {
    std::ranges::sort(lines_);
    sorted_ = true;
  }
  return lines_;
}

std::uint64_t RegistrationList::digest() const {
  Fnv1a hash;
  for (const std::string& line : lines()) hash.add(line).add("\n");
  return hash.value();
}

void RegistrationAgreement::settle() {
  if (settled()) return;
  if (guard_.group().size() > 1) {
    const std::uint64_t digest = list_.digest();
    std::array<std::uint32_t, CollectiveGuard::kFramePayload> frame{};
    frame[0] = static_cast<std::uint32_t>(digest);
    frame[1] = static_cast<std::uint32_t>(digest >> 32U);
    frame[2] = ~frame[0];
    frame[3] = ~frame[1];
    guard_.reduce_max(frame, 4, {.what = "comparison of registrations"});
    if (frame[0] != ~frame[2] || frame[1] != ~frame[3]) {
      // All ranks see the same outcome, so all of them are here.
      const std::vector<std::string> lists = all_gather_text(
          guard_.group(), fmt::format("{}", fmt::join(list_.lines(), "\n")), {.what = "registrations"});
      throw Error(ErrorCode::kMismatch, describe_difference(guard_.group(), lists));
    }
  }
  agreed_version_ = list_.version();
}

}  // namespace amaxscope

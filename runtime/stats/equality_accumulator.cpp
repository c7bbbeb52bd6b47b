#include "runtime/stats/equality_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/content_hash.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kHeaderWords = 3;  // ran, fingerprint low and high

std::array<std::uint32_t, 4> words_of(std::uint64_t fingerprint) {
  const auto low = static_cast<std::uint32_t>(fingerprint);
  const auto high = static_cast<std::uint32_t>(fingerprint >> 32);
  return {low, high, ~low, ~high};
}

bool all_equal(std::span<const std::uint32_t> max) { return max[0] == ~max[2] && max[1] == ~max[3]; }

}  // namespace

EqualityAccumulator::EqualityAccumulator(std::string id, std::size_t evidence_words, Explain explain)
    : id_(std::move(id)), evidence_words_(evidence_words), explain_(std::move(explain)) {}

void EqualityAccumulator::feed(std::uint64_t fingerprint, std::span<const std::uint32_t> words) {
  fingerprint_ = ran() ? combine_hashes(fingerprint_, fingerprint) : fingerprint;
  const std::size_t room = evidence_words_ - std::min(evidence_words_, words_.size());
  words_.insert(words_.end(), words.begin(),
                words.begin() + static_cast<std::ptrdiff_t>(std::min(room, words.size())));
  mark_ran(true);
}

void EqualityAccumulator::reset() {
  fingerprint_ = 0;
  words_.clear();
  mark_ran(false);
}

void EqualityAccumulator::pack_max(std::span<std::uint32_t> out) const {
  if (!ran()) {
    std::ranges::fill(out, 0U);
    return;
  }
  std::ranges::copy(words_of(fingerprint_), out.begin());
}

std::size_t EqualityAccumulator::detail_words(const ReducedStat& reduced) const {
  return all_equal(reduced.max) || reported_ ? 0 : kHeaderWords + evidence_words_;
}

void EqualityAccumulator::pack_details(std::span<std::uint32_t> out) const {
  if (!ran()) return;
  const auto words = words_of(fingerprint_);
  out[0] = 1;
  out[1] = words[0];
  out[2] = words[1];
  std::ranges::copy(words_, out.begin() + kHeaderWords);
}

std::vector<Finding> EqualityAccumulator::findings(const ReducedStat& reduced) const {
  if (all_equal(reduced.max) || reported_ || reduced.details.empty()) return {};
  const std::size_t stride = kHeaderWords + evidence_words_;
  std::vector<RankEvidence> evidence;
  for (std::size_t i = 0; i < reduced.ranks.size(); ++i) {
    const auto own = reduced.details.subspan(i * stride, stride);
    if (own[0] == 0) continue;
    evidence.push_back({.rank = reduced.ranks[i],
                        .ran = true,
                        .fingerprint = own[1] | (std::uint64_t{own[2]} << 32),
                        .words = own.subspan(kHeaderWords)});
  }
  std::optional<Finding> finding = explain_(evidence);
  if (!finding) return {};
  reported_ = true;
  return {std::move(*finding)};
}

std::vector<std::vector<int>> rank_sets(std::span<const RankEvidence> evidence) {
  std::vector<std::pair<std::uint64_t, std::vector<int>>> sets;
  for (const RankEvidence& one : evidence) {
    auto found = std::ranges::find_if(sets, [&](const auto& set) { return set.first == one.fingerprint; });
    if (found == sets.end()) found = sets.insert(sets.end(), {one.fingerprint, {}});
    found->second.push_back(one.rank);
  }
  std::ranges::stable_sort(sets,
                           [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::vector<std::vector<int>> result;
  result.reserve(sets.size());
  for (auto& [fingerprint, ranks] : sets) result.push_back(std::move(ranks));
  return result;
}

std::string sets_text(const std::vector<std::vector<int>>& sets) {
  std::string text;
  for (const std::vector<int>& set : sets) {
    if (!text.empty()) text += " against ";
    text += ranks_text(set);
  }
  return text;
}

std::vector<std::string> values_of_sets(const std::vector<std::vector<int>>& sets,
                                        std::span<const RankEvidence> evidence,
                                        const std::function<std::string(const RankEvidence&)>& value) {
  std::vector<std::string> texts;
  for (const std::vector<int>& set : sets) {
    const auto one = std::ranges::find(evidence, set.front(), &RankEvidence::rank);
    texts.push_back(fmt::format("{} on {}", value(*one), ranks_text(set)));
  }
  return texts;
}

std::vector<int> odd_ones_out(const std::vector<std::vector<int>>& sets) {
  std::vector<int> ranks;
  for (std::size_t i = 1; i < sets.size(); ++i) ranks.insert(ranks.end(), sets[i].begin(), sets[i].end());
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace amaxscope

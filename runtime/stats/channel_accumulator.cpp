#include "runtime/stats/channel_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "kernels/magnitudes.hpp"

namespace amaxscope {

namespace {

// A word is the number of lines + 1, so that 0, the identity of MAX, stands for "not known".
constexpr std::uint32_t kTooMany = std::numeric_limits<std::uint32_t>::max();

/// Lines of each part; empty when there are too many.
std::vector<std::size_t> widths_of(std::span<const std::uint32_t> max) {
  const std::uint32_t widest = std::ranges::max(max);
  if (widest == kTooMany || widest == 0) return {};
  std::vector<std::size_t> widths;
  std::size_t all = 0;
  for (const std::uint32_t word : max) {
    widths.push_back((word == 0 ? widest : word) - 1);
    all += widths.back();
  }
  return all > static_cast<std::size_t>(ChannelAccumulator::kMaxLines) ? std::vector<std::size_t>{} : widths;
}

/// Lines with energy, most of it first.
std::vector<std::size_t> top_of(std::span<const double> energies, int top) {
  std::vector<std::size_t> ids(energies.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  const auto middle = ids.begin() + std::min<std::ptrdiff_t>(top, static_cast<std::ptrdiff_t>(ids.size()));
  std::partial_sort(ids.begin(), middle, ids.end(), [&](std::size_t a, std::size_t b) {
    return energies[a] > energies[b] || (energies[a] == energies[b] && a < b);
  });
  ids.erase(middle, ids.end());
  std::erase_if(ids, [&](std::size_t id) { return energies[id] == 0; });
  return ids;
}

/// Which part holds a line.
std::size_t part_of(std::span<const std::uint32_t> max, std::size_t line) {
  const std::vector<std::size_t> widths = widths_of(max);
  std::size_t part = 0;
  while (part + 1 < widths.size() && line >= widths[part]) line -= widths[part++];
  return part;
}

}  // namespace

void ChannelAccumulator::feed(const TensorView& x) {
  mark_ran(true);
  const std::int64_t count = lines_ == Lines::kColumns ? x.cols() : x.rows();
  if (count > kMaxLines) {
    too_many_ = true;
    return;
  }
  const auto lines = static_cast<std::size_t>(count);
  if (lines > energies_.size()) energies_.resize(lines);
  const auto into = std::span(energies_).first(lines);
  if (lines_ == Lines::kColumns) {
    add_column_energies(x, into);
  } else {
    add_row_energies(x, into);
  }
}

std::string ChannelAccumulator::id() const {
  return fmt::format("outlier_{} {}", lines_ == Lines::kColumns ? "channels" : "rows", top_);
}

void ChannelAccumulator::reset() {
  energies_ = {};
  too_many_ = false;
  mark_ran(false);
}

void ChannelAccumulator::pack_max(std::span<std::uint32_t> out) const {
  std::ranges::fill(out, 0U);
  if (!ran()) return;
  out[static_cast<std::size_t>(split_.part)] =
      too_many_ ? kTooMany : static_cast<std::uint32_t>(energies_.size()) + 1U;
}

std::size_t ChannelAccumulator::sum_words_for(std::span<const std::uint32_t> max) const {
  const std::vector<std::size_t> widths = widths_of(max);
  return std::accumulate(widths.begin(), widths.end(), std::size_t{0});
}

void ChannelAccumulator::pack_sums_for(std::span<const std::uint32_t> max, std::span<double> out) const {
  if (out.empty()) return;
  const std::vector<std::size_t> widths = widths_of(max);
  const std::size_t offset = std::accumulate(widths.begin(), widths.begin() + split_.part, std::size_t{0});
  std::ranges::copy(energies_, out.begin() + static_cast<std::ptrdiff_t>(offset));
}

void ChannelAccumulator::advance(const ReducedStat& reduced, std::int64_t iteration) {
  if (reduced.sums.empty() && std::ranges::max(reduced.max) > 1 && !warned_) {
    warned_ = true;
    warnings_.push_back(fmt::format("outlier_{} is left out: the tensor has more than {} {}",
                                    lines_ == Lines::kColumns ? "channels" : "rows", kMaxLines,
                                    lines_ == Lines::kColumns ? "columns" : "rows"));
  }
  shares_.add(iteration, reduced.sums);
  history_.push_back(top_of(reduced.sums, top_));
  if (history_.size() > kRemembered) history_.pop_front();
  remember(history_.back());
}

/// A beginning that was found counts for as long as its line stands out: the further it lies back, the less
/// is left to find it by.
void ChannelAccumulator::remember(const std::vector<std::size_t>& ids) {
  std::map<std::size_t, std::int64_t> rising;
  for (const std::size_t id : ids) {
    const auto known = rising_.find(id);
    const std::optional<std::int64_t> since =
        known != rising_.end() ? std::optional(known->second) : shares_.rising_since(id);
    if (since) rising.emplace(id, *since);
  }
  rising_ = std::move(rising);
}

std::vector<std::string> ChannelAccumulator::take_warnings() { return std::exchange(warnings_, {}); }

std::vector<StatValue> ChannelAccumulator::values(const ReducedStat& reduced) const {
  const double all = std::accumulate(reduced.sums.begin(), reduced.sums.end(), 0.0);
  std::vector<StatValue> out;
  int place = 0;
  for (const std::size_t id : top_of(reduced.sums, top_)) {
    const auto times = std::ranges::count_if(
        history_, [&](const auto& ids) { return std::ranges::find(ids, id) != ids.end(); });
    const std::string name =
        fmt::format("outlier_{}_{}", lines_ == Lines::kColumns ? "channel" : "row", ++place);
    out.push_back({name + "_id", static_cast<double>(id)});
    out.push_back({name + "_energy%", 100 * reduced.sums[id] / all});
    out.push_back({name + "_due_steps", static_cast<double>(times)});
    if (split_.parts > 1) out.push_back({name + "_tp_rank", static_cast<double>(part_of(reduced.max, id))});
    const auto since = rising_.find(id);
    if (since != rising_.end()) out.push_back({name + "_since", static_cast<double>(since->second)});
  }
  return out;
}

// Each list behind its length: the due iterations, of each its ids; what rises, with since when; the shares.
std::vector<std::uint64_t> ChannelAccumulator::saved() const {
  std::vector<std::uint64_t> words = {history_.size()};
  for (const std::vector<std::size_t>& ids : history_) {
    words.push_back(ids.size());
    words.insert(words.end(), ids.begin(), ids.end());
  }
  words.push_back(rising_.size());
  for (const auto& [id, since] : rising_) {
    words.push_back(id);
    words.push_back(std::bit_cast<std::uint64_t>(since));
  }
  const std::vector<std::uint64_t> shares = shares_.saved();
  words.insert(words.end(), shares.begin(), shares.end());
  return words;
}

void ChannelAccumulator::restore(const std::vector<std::uint64_t>& words) {
  std::size_t at = 0;
  const auto take = [&](std::uint64_t most, std::size_t words_each) {
    const std::uint64_t count = at < words.size() ? words[at++] : most + 1;
    AMAXSCOPE_CHECK(count <= most && count * words_each <= words.size() - at, ErrorCode::kInput,
                    "saved outlier channels: word {} of {} is no count of at most {}", at, words.size(),
                    most);
    return static_cast<std::size_t>(count);
  };
  std::deque<std::vector<std::size_t>> history;
  for (std::size_t left = take(kRemembered, 1); left > 0; --left) {
    const std::size_t count = take(static_cast<std::uint64_t>(top_), 1);
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(at);
    history.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
    at += count;
  }
  std::map<std::size_t, std::int64_t> rising;
  for (std::size_t left = take(static_cast<std::uint64_t>(top_), 2); left > 0; --left, at += 2)
    rising.emplace(words[at], std::bit_cast<std::int64_t>(words[at + 1]));
  shares_.restore(std::span(words).subspan(at));
  history_ = std::move(history);
  rising_ = std::move(rising);
}

}  // namespace amaxscope

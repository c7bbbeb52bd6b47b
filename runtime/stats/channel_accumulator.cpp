#include "runtime/stats/channel_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "kernels/magnitudes.hpp"

namespace amaxscope {

namespace {

// A word is the number of columns + 1, so that 0, the identity of MAX, stands for "not known".
constexpr std::uint32_t kTooWide = std::numeric_limits<std::uint32_t>::max();

/// Columns of each part; empty when there are too many.
std::vector<std::size_t> widths_of(std::span<const std::uint32_t> max) {
  const std::uint32_t widest = std::ranges::max(max);
  if (widest == kTooWide || widest == 0) return {};
  std::vector<std::size_t> widths;
  std::size_t all = 0;
  for (const std::uint32_t word : max) {
    widths.push_back((word == 0 ? widest : word) - 1);
    all += widths.back();
  }
  return all > static_cast<std::size_t>(ChannelAccumulator::kMaxColumns) ? std::vector<std::size_t>{}
                                                                         : widths;
}

/// Columns with energy, most of it first.
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

}  // namespace

void ChannelAccumulator::feed(const TensorView& x) {
  mark_ran(true);
  if (x.cols() > kMaxColumns) {
    too_wide_ = true;
    return;
  }
  const auto columns = static_cast<std::size_t>(x.cols());
  if (columns > energies_.size()) energies_.resize(columns);
  add_column_energies(x, std::span(energies_).first(columns));
}

std::string ChannelAccumulator::id() const { return fmt::format("outlier_channels {}", top_); }

void ChannelAccumulator::reset() {
  energies_ = {};
  too_wide_ = false;
  mark_ran(false);
}

void ChannelAccumulator::pack_max(std::span<std::uint32_t> out) const {
  std::ranges::fill(out, 0U);
  if (!ran()) return;
  out[static_cast<std::size_t>(split_.part)] =
      too_wide_ ? kTooWide : static_cast<std::uint32_t>(energies_.size()) + 1U;
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

void ChannelAccumulator::advance(const ReducedStat& reduced, std::int64_t /*iteration*/) {
  if (reduced.sums.empty() && std::ranges::max(reduced.max) > 1 && !warned_) {
    warned_ = true;
    warnings_.push_back(
        fmt::format("outlier_channels is left out: the tensor has more than {} columns", kMaxColumns));
  }
  history_.push_back(top_of(reduced.sums, top_));
  if (history_.size() > kRemembered) history_.pop_front();
}

std::vector<std::string> ChannelAccumulator::take_warnings() { return std::exchange(warnings_, {}); }

std::vector<StatValue> ChannelAccumulator::values(const ReducedStat& reduced) const {
  const double all = std::accumulate(reduced.sums.begin(), reduced.sums.end(), 0.0);
  std::vector<StatValue> out;
  int place = 0;
  for (const std::size_t id : top_of(reduced.sums, top_)) {
    const auto times = std::ranges::count_if(
        history_, [&](const auto& ids) { return std::ranges::find(ids, id) != ids.end(); });
    const std::string name = fmt::format("outlier_channel_{}", ++place);
    out.push_back({name + "_id", static_cast<double>(id)});
    out.push_back({name + "_energy%", 100 * reduced.sums[id] / all});
    out.push_back({name + "_due_steps", static_cast<double>(times)});
  }
  return out;
}

// For each due iteration the number of its ids, then these.
std::vector<std::uint64_t> ChannelAccumulator::saved() const {
  std::vector<std::uint64_t> words;
  for (const std::vector<std::size_t>& ids : history_) {
    words.push_back(ids.size());
    words.insert(words.end(), ids.begin(), ids.end());
  }
  return words;
}

void ChannelAccumulator::restore(const std::vector<std::uint64_t>& words) {
  std::deque<std::vector<std::size_t>> history;
  for (std::size_t at = 0; at < words.size();) {
    const std::uint64_t count = words[at++];
    AMAXSCOPE_CHECK(count <= static_cast<std::uint64_t>(top_) && count <= words.size() - at &&
                        history.size() < kRemembered,
                    ErrorCode::kInput,
                    "saved outlier channels: {} ids at word {} of {}, with at most {} of {} times", count,
                    at - 1, words.size(), top_, kRemembered);
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(at);
    history.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
    at += count;
  }
  history_ = std::move(history);
}

}  // namespace amaxscope

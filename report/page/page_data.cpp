#include "report/page/page_data.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

namespace amaxscope::report {

namespace {

constexpr std::size_t kLongestName = 200;  ///< of a statistic or scalar
constexpr std::size_t kMostFormats = 16;
constexpr std::size_t kMostFormatted = 100'000;
constexpr std::size_t kLongestFormat = 80;
constexpr std::string_view kHistogram = "histogram_";
constexpr std::string_view kComparisons = "checked/";

std::string tensor_name(const RecordLine& line) {
  return line.phase == "forward" || line.phase == "backward" ? line.tensor
                                                             : line.tensor + " in " + line.phase;
}

/// -1 for the embedding, the block's number, or the largest number for what has none.
std::int64_t block_of(const std::string& layer) {
  constexpr std::string_view kBlocks = "layers.";
  if (layer.starts_with("embedding")) return -1;
  const std::size_t at = layer.find(kBlocks);
  std::int64_t block = 0;
  if (at == std::string::npos) return std::numeric_limits<std::int64_t>::max();
  const char* const end = layer.data() + layer.size();
  const auto parsed = std::from_chars(layer.data() + at + kBlocks.size(), end, block);
  return parsed.ec == std::errc() ? block : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

BucketSeries PageData::Values::all() const {
  BucketSeries all = own;
  all.add(merged);
  for (const auto& other : others) all.add(other.second);
  return all;
}

bool PageData::Values::differs() const {
  return std::ranges::any_of(others, [&](const auto& other) { return differ(own, other.second); });
}

PageData::PageData(PageLimits limits) : limits_(limits) {
  numbers_.most = limits.stat_buckets;
  histograms_.most = limits.histogram_buckets;
  ranks_.most = limits.rank_buckets;
}

const std::uint32_t* PageData::number_of(Names& names, const std::string& name) const {
  const auto found = names.numbers.find(name);
  if (found != names.numbers.end()) return &found->second;
  if (names.names.size() >= limits_.names) return nullptr;
  names.names.push_back(name);
  return &names.numbers.emplace(name, static_cast<std::uint32_t>(names.names.size() - 1)).first->second;
}

void PageData::record(const RecordLine& line) {
  const std::uint32_t* const layer = number_of(layers_, line.layer);
  const std::uint32_t* const tensor = number_of(tensors_, tensor_name(line));
  if (layer == nullptr || tensor == nullptr) {
    left_out_ += line.stats.size();
    return;
  }
  add_format(*layer, *tensor, line);
  const std::int64_t rank = line.group.empty() ? line.rank : line.group.front();
  for (const auto& [name, value] : line.stats) {
    const std::uint32_t* const stat = name.size() <= kLongestName ? number_of(stats_, name) : nullptr;
    if (stat == nullptr) {
      ++left_out_;
      continue;
    }
    if (*stat >= is_histogram_.size()) is_histogram_.push_back(name.starts_with(kHistogram));
    Pool& pool = pool_of(*stat);
    const Key key{*layer, *tensor, *stat};
    auto found = series_.find(key);
    if (found == series_.end()) {
      if (series_.size() >= limits_.series) {
        ++left_out_;
        continue;
      }
      found = series_.emplace(key, Values{.rank = rank, .own = {}, .merged = {}, .others = {}}).first;
    }
    Values& values = found->second;
    if (values.rank == rank) {
      add(pool, values.own, line.iteration, value);
      continue;
    }
    auto other = values.others.find(rank);
    const bool room = !is_histogram_[*stat] && values.others.size() < limits_.ranks_a_series &&
                      rank_series_ < limits_.rank_series;
    if (other == values.others.end() && room) {
      other = values.others.try_emplace(rank).first;
      ++rank_series_;
    }
    if (other != values.others.end()) {
      add(ranks_, other->second, line.iteration, value);
    } else {
      add(pool, values.merged, line.iteration, value);
    }
  }
}

void PageData::add_format(std::uint32_t layer, std::uint32_t tensor, const RecordLine& line) {
  if (formats_.size() >= kMostFormatted && !formats_.contains({layer, tensor})) return;
  std::vector<OperandFormat>& known = formats_[{layer, tensor}];
  const bool same = !known.empty() && known.back().recipe == line.recipe &&
                    (known.back().format == line.format || line.format.empty());
  // Another rank's file begins again at the first iteration: it says nothing new.
  if (same || known.size() >= kMostFormats || (!known.empty() && line.iteration <= known.back().iteration))
    return;
  known.push_back(
      {line.iteration, line.recipe.substr(0, kLongestFormat), line.format.substr(0, kLongestFormat)});
}

void PageData::scalars(std::int64_t iteration, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) {
    if (name.starts_with(kComparisons)) continue;
    if (name.size() > kLongestName || (scalars_.size() >= limits_.scalars && !scalars_.contains(name))) {
      ++left_out_;
      continue;
    }
    BucketSeries& series = scalars_[name];
    series.add(iteration, value);
    series.fit(limits_.buckets_a_scalar);
  }
}

void PageData::add(Pool& pool, BucketSeries& series, std::int64_t iteration, double value) {
  series.widen(pool.shift);
  const std::size_t before = series.buckets().size();
  series.add(iteration, value);
  series.fit(limits_.buckets_a_series);
  pool.used = pool.used + series.buckets().size() - before;
  while (pool.used > pool.most && pool.shift < BucketSeries::kWidest) make_room(pool);
}

void PageData::make_room(Pool& pool) {
  ++pool.shift;
  pool.used = 0;
  for (auto& [key, values] : series_) {
    const auto widen = [&](BucketSeries& series) {
      series.widen(pool.shift);
      pool.used += series.buckets().size();
    };
    if (&pool == &ranks_) {
      for (auto& [rank, series] : values.others) widen(series);
    } else if (&pool_of(key.stat) == &pool) {
      widen(values.own);
      widen(values.merged);
    }
  }
}

std::size_t PageData::buckets() const noexcept { return numbers_.used + histograms_.used + ranks_.used; }

std::vector<std::uint32_t> model_order(const std::vector<std::string>& layers) {
  std::vector<std::uint32_t> order(layers.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t layer) { return block_of(layers[layer]); });
  return order;
}

}  // namespace amaxscope::report

#include "report/evidence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace amaxscope::report {

namespace {

/// The statistics that a rule reads. Everything else passes by.
constexpr std::array<std::string_view, 31> kSpeaking = {"cur_amax",
                                                        "nan",
                                                        "inf",
                                                        "rms",
                                                        "peak_rms",
                                                        "outlier_channel_1_id",
                                                        "outlier_channel_1_energy%",
                                                        "outlier_channel_1_since",
                                                        "outlier_channel_1_tp_rank",
                                                        "outlier_row_1_id",
                                                        "outlier_row_1_energy%",
                                                        "outlier_row_1_tp_rank",
                                                        "outlier_row_1_since",
                                                        "saturated%",
                                                        "saturated_energy%",
                                                        "saturated_blocks%",
                                                        "flushed%",
                                                        "flushed_energy%",
                                                        "sqnr",
                                                        "nvfp4_sqnr",
                                                        "fp8_current_scaling_sqnr",
                                                        "fp8_block_scaling_sqnr",
                                                        "mxfp8_sqnr",
                                                        "nvfp4_rounding_correlation",
                                                        "lost_updates%",
                                                        "update_ratio",
                                                        "adam_ratio",
                                                        "gradient_noise",
                                                        "error_from_accumulation%",
                                                        "amax_log2_slope",
                                                        "relative_error"};
constexpr std::uint64_t kFreshLines = 2;
constexpr std::size_t kPointsOfATensor = 128;
constexpr std::size_t kManyTensors = 4'000;  ///< beyond them each gets fewer points
constexpr std::size_t kPointsOfOneOfMany = 32;
constexpr std::size_t kPointsOfAScalar = 4096;
constexpr std::size_t kMostRanks = 1U << 17;
constexpr std::size_t kMostGroups = 64;
constexpr std::size_t kMostFormats = 16;
constexpr std::string_view kComparisons = "checked/";

bool speaks(std::string_view stat) { return std::ranges::find(kSpeaking, stat) != kSpeaking.end(); }

bool counts_nonfinite(std::string_view stat, double value) {
  return stat == "nan" || stat == "inf" ? value > 0 : stat == "cur_amax" && !std::isfinite(value);
}

bool is_training(const std::string& phase) { return phase == "forward" || phase == "backward"; }

}  // namespace

const Series* TensorSeries::find(const std::string& stat) const {
  const auto found = stats.find(stat);
  return found != stats.end() && !found->second.empty() ? &found->second : nullptr;
}

void Evidence::record(const RecordLine& line) {
  ++records_;
  if (!is_training(line.phase)) return;
  const Place place{line.layer, line.tensor};
  auto found = tensors_.find(place);
  if (found == tensors_.end()) {
    if (tensors_.size() >= kMostTensors) {
      ++left_out_;
      return;
    }
    found = tensors_.emplace(place, TensorSeries()).first;
    found->second.order = tensors_.size();
  }
  TensorSeries& tensor = found->second;
  tensor.recipe = line.recipe;
  if (!line.format.empty() && tensor.formats.size() < kMostFormats) {
    tensor.formats.try_emplace(line.format, line.iteration);
  }
  // A scale is at its initial value in a tensor's first step; one that stays there is no start any more.
  const std::size_t points = tensor.order > kManyTensors ? kPointsOfOneOfMany : kPointsOfATensor;
  const bool fresh = tensor.lines++ < kFreshLines;
  if (!tensor.group &&
      (line.stats.contains("outlier_channel_1_tp_rank") || line.stats.contains("outlier_row_1_tp_rank"))) {
    tensor.group = group_of(line);
  }
  for (const auto& [stat, value] : line.stats) {
    if (!speaks(stat)) continue;
    measured_.insert(stat);
    if (const auto format = line.formats.find(stat); format != line.formats.end()) {
      tensor.what_ifs[stat] = format->second;
    }
    if (counts_nonfinite(stat, value)) {
      tensor.nonfinite = std::min(tensor.nonfinite.value_or(line.iteration), line.iteration);
    }
    if (fresh && line.has_flag(stat, "no_history")) continue;
    tensor.stats.try_emplace(stat, points).first->second.add(line.iteration, value);
  }
}

std::optional<std::size_t> Evidence::group_of(const RecordLine& line) {
  if (line.group.empty() || line.group.size() > kMostRanks) return std::nullopt;
  const auto known = std::ranges::find(groups_, line.group);
  if (known == groups_.end() && groups_.size() >= kMostGroups) return std::nullopt;
  const auto number = static_cast<std::size_t>(known - groups_.begin());
  if (known == groups_.end()) groups_.push_back(line.group);
  return number;
}

void Evidence::scalars(std::int64_t iteration, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) {
    if (name.starts_with(kComparisons)) {
      if (value > 0 && comparisons_.size() < kMostScalars)
        comparisons_[name.substr(kComparisons.size())] += value;
      continue;
    }
    if (scalars_.size() >= kMostScalars && !scalars_.contains(name)) {
      ++left_out_;
      continue;
    }
    scalars_.try_emplace(name, kPointsOfAScalar).first->second.add(iteration, value);
  }
}

void Evidence::finding(const FindingLine& line) {
  const auto key = std::tuple(line.check, line.layer, line.tensor);
  auto at = findings_.find(key);
  if (at == findings_.end()) {
    if (findings_.size() >= kMostFindings) {
      ++left_out_;
      return;
    }
    at = findings_
             .emplace(
                 key,
                 Found{
                     .first = line, .ranks = {}, .last_iteration = line.iteration, .order = findings_.size()})
             .first;
  }
  Found& found = at->second;
  found.last_iteration = std::max(found.last_iteration, line.iteration);
  if (line.iteration > found.first.iteration) return;
  if (line.iteration < found.first.iteration) {
    found.first = line;
    found.ranks.clear();
  }
  for (const std::int64_t rank : line.ranks) {
    if (found.ranks.size() < kMostRanks) found.ranks.insert(rank);
  }
}

std::vector<const std::pair<const Place, TensorSeries>*> Evidence::in_order() const {
  std::vector<const std::pair<const Place, TensorSeries>*> ordered;
  ordered.reserve(tensors_.size());
  for (const auto& entry : tensors_) ordered.push_back(&entry);
  std::ranges::sort(ordered, {}, [](const auto* entry) { return entry->second.order; });
  return ordered;
}

const Series* Evidence::scalar(const std::string& name) const {
  const auto found = scalars_.find(name);
  return found != scalars_.end() && !found->second.empty() ? &found->second : nullptr;
}

double Evidence::comparisons(const std::string& check) const {
  const auto found = comparisons_.find(check);
  return found != comparisons_.end() ? found->second : 0.0;
}

bool Evidence::measured(const std::string& stat) const { return measured_.contains(stat); }

}  // namespace amaxscope::report

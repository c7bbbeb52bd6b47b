#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kInARow = 3;
constexpr double kBefore = 25.0;  ///< percent of the energy
constexpr double kNow = 40.0;
constexpr double kRowBefore = 5.0;  ///< percent of a weight's energy in one row
constexpr double kRowNow = 20.0;
constexpr double kTimes = 3.0;  ///< that the largest element of a growing weight has become larger

std::span<const Point> last_of(std::span<const Point> points, std::size_t count) {
  return points.last(std::min(points.size(), count));
}

/// What counts iterations, ranks or lines; records may hold anything.
std::optional<std::int64_t> whole(std::optional<double> value) {
  constexpr double kMost = 0x1p53;
  if (!value || !(*value >= 0) || *value > kMost) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

/// The value at an iteration, if there is one.
std::optional<double> at(const Series* series, std::int64_t iteration) {
  if (series == nullptr) return std::nullopt;
  const auto points = series->points();
  const auto found = std::ranges::find(points, iteration, &Point::iteration);
  return found != points.end() ? std::optional(found->value) : std::nullopt;
}

/// "decoder.layers.1.mlp."
std::string block_of(const std::string& layer) { return layer.substr(0, layer.rfind('.') + 1); }

/// A row of a weight that stands out.
struct Row {
  std::int64_t id = 0;
  std::int64_t since = 0;  ///< its share of the energy rises
};

/// The row that leads in the last records, when it is known since when it rises.
std::optional<Row> risen_row(const TensorSeries& weight) {
  const Series* id = weight.find("outlier_row_1_id");
  if (id == nullptr || id->points().size() < kInARow) return std::nullopt;
  const auto last = last_of(id->points(), kInARow);
  const double leader = last.back().value;
  if (!std::ranges::all_of(last, [&](const Point& point) { return point.value == leader; }))
    return std::nullopt;
  const auto row = whole(leader);
  const auto since = whole(at(weight.find("outlier_row_1_since"), last.back().iteration));
  if (!row || !since) return std::nullopt;
  return Row{*row, *since};
}

/// A weight whose largest element grows steadily.
struct Growth {
  Place place;
  double percent_a_step = 0;
  std::int64_t since =
      0;  ///< where its exponential meets the level of before, which other elements may hold up
  std::optional<Row> row;  ///< the one that grows: known since when by its own past
};

/// Of the weights in the same block of the model ("decoder.layers.1.mlp."), the one that grows most.
std::optional<Growth> growing_weight(const Evidence& evidence, const std::string& layer) {
  const std::string block = block_of(layer);
  std::optional<Growth> most;
  for (auto at = evidence.tensors().lower_bound({block, ""}); at != evidence.tensors().end(); ++at) {
    const auto& [place, tensor] = *at;
    if (!place.layer.starts_with(block)) break;
    const Series* amax = tensor.find("cur_amax");
    if (amax == nullptr || place.tensor != "weight" || amax->points().size() < 4 * kInARow) continue;
    const auto points = amax->points();
    const auto late = points.subspan(points.size() / 2);
    const double before = median(points.first(points.size() / 4));
    if (!(before > 0) || !(late.back().value > kTimes * before)) continue;
    if (!std::ranges::is_sorted(late, {}, &Point::value) || !(late.front().value > 0)) continue;
    const double slope = std::log2(late.back().value / late.front().value) /
                         static_cast<double>(late.back().iteration - late.front().iteration);
    if (!(slope > 0)) continue;
    const double percent = 100 * (std::exp2(slope) - 1);
    if (most && most->percent_a_step >= percent) continue;
    const auto steps = whole(std::log2(late.back().value / before) / slope).value_or(late.back().iteration);
    most = Growth{place, percent, std::max(points.front().iteration, late.back().iteration - steps),
                  risen_row(tensor)};
  }
  return most;
}

/// A channel of an activation that has taken over.
struct Channel {
  std::int64_t id = 0;
  std::vector<Point> energy;  ///< percent, wherever it led
};

std::optional<Channel> taken_over(const TensorSeries& tensor) {
  const Series* energy = tensor.find("outlier_channel_1_energy%");
  const Series* id = tensor.find("outlier_channel_1_id");
  if (energy == nullptr || id == nullptr) return std::nullopt;
  const auto points = energy->points();
  const auto ids = id->points();
  if (points.size() < 4 * kInARow || ids.empty()) return std::nullopt;
  if (!(median(points.first(points.size() / 4)) < kBefore)) return std::nullopt;
  // The one that leads at the most points of the last quarter, and takes over there.
  std::map<std::int64_t, std::size_t> leads;
  const std::int64_t late = points[points.size() - std::max(kInARow, points.size() / 4)].iteration;
  for (const Point& point : ids) {
    const auto channel = whole(point.value);
    if (channel && point.iteration >= late) ++leads[*channel];
  }
  const auto leader = std::ranges::max_element(leads, {}, [](const auto& each) { return each.second; });
  if (leader == leads.end() || leader->second < kInARow) return std::nullopt;
  Channel channel{.id = leader->first, .energy = {}};
  for (const Point& point : ids) {
    if (whole(point.value) != channel.id) continue;
    if (const auto share = at(energy, point.iteration)) channel.energy.push_back({point.iteration, *share});
  }
  if (!(median(last_of(channel.energy, kInARow)) > kNow)) return std::nullopt;
  return channel;
}

/// What the records say of the channel where it led last.
std::optional<std::int64_t> said_of(const TensorSeries& tensor, const Channel& channel, const char* stat) {
  return whole(at(tensor.find(stat), channel.energy.back().iteration));
}

/// Since when, from what grows: the row of the weight that feeds it; else the channel's own past; else the
/// largest element of the weight, extrapolated.
void date(Cause& cause, const std::optional<Growth>& growth, std::optional<std::int64_t> own) {
  if (growth && growth->row) {
    cause.iteration = std::min(cause.iteration, growth->row->since);
    cause.why.insert(
        cause.why.begin(),
        fmt::format("row {} of {} has grown since iteration {}, its largest element by {:.1f} % a step",
                    growth->row->id, named({growth->place}), growth->row->since, growth->percent_a_step));
  } else if (own) {
    cause.iteration = std::min(cause.iteration, *own);
  } else if (growth) {
    cause.iteration = std::min(cause.iteration, growth->since);
    cause.why.insert(
        cause.why.begin(),
        fmt::format("the largest element of {} grows by {:.1f} % a step, since about iteration {}",
                    named({growth->place}), growth->percent_a_step, growth->since));
  }
}

/// A row that has come to hold much of a weight: the channel is there, whatever the activations make of it.
std::optional<Cause> taken_over_by_a_row(const Place& place, const TensorSeries& tensor) {
  const Series* energy = tensor.find("outlier_row_1_energy%");
  if (place.tensor != "weight" || energy == nullptr) return std::nullopt;
  const auto points = energy->points();
  const std::optional<Row> row = risen_row(tensor);
  if (!row || points.size() < 4 * kInARow) return std::nullopt;
  if (!(median(points.first(points.size() / 4)) < kRowBefore)) return std::nullopt;
  if (!(median(last_of(points, kInARow)) > kRowNow)) return std::nullopt;
  Cause cause;
  cause.kind = "outlier_channel";
  cause.confidence = Confidence::kLikely;
  cause.sampled = true;
  cause.iteration = row->since;
  cause.channel = row->id;
  cause.tp_rank = whole(at(tensor.find("outlier_row_1_tp_rank"), points.back().iteration));
  cause.places = {place};
  cause.gemms = gemms_of(place.tensor, "");
  cause.series = a_few_of(points);
  cause.series_name = fmt::format("percent of the energy in the largest row of {}", named(cause.places));
  cause.sentence = fmt::format("one output channel takes over: row {} of {}", row->id, named(cause.places));
  cause.why = {
      fmt::format(
          "the row has grown since iteration {} and holds {:.0f} % of the weight's energy; no row held "
          "more than {:.0f} % in the beginning",
          row->since, points.back().value, kRowBefore),
      "with one scale for the weight the other rows are pressed towards zero"};
  cause.actions = {
      "look at what drives this row: its gradient, its weight decay, what it is tied to; decay or clipping "
      "stops it",
      "until then keep this GEMM's weight in block scales or in high precision"};
  cause.expect = "the share of the row stops growing";
  cause.yaml =
      yaml_section("spare_this_gemm", cause.places,
                   "    DisableQuantizationGEMM:\n      enabled: True\n      gemms: [fprop, dgrad]\n");
  return cause;
}

}  // namespace

std::vector<Cause> outlier_channels(const Evidence& evidence) {
  std::vector<Cause> causes;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    if (place.tensor != "activation") continue;
    const std::optional<Channel> channel = taken_over(tensor);
    if (!channel) continue;
    const std::vector<Point>& taken = channel->energy;
    Cause cause;
    cause.kind = "outlier_channel";
    cause.confidence = Confidence::kLikely;
    cause.sampled = true;
    cause.iteration = taken.front().iteration;
    cause.channel = channel->id;
    cause.tp_rank = said_of(tensor, *channel, "outlier_channel_1_tp_rank");
    cause.places = {place};
    cause.gemms = gemms_of(place.tensor, "");
    cause.series = a_few_of(taken);
    cause.series_name = fmt::format("percent of the energy in channel {}", channel->id);
    cause.sentence =
        fmt::format("one channel takes over: channel {} of {}", channel->id, named(cause.places));
    cause.why = {
        "it leads due step after due step and its share grows: a channel that the weights feed, not a token",
        "with one scale for the tensor the other channels are pressed towards zero"};
    date(cause, growing_weight(evidence, place.layer), said_of(tensor, *channel, "outlier_channel_1_since"));
    cause.actions = {
        "look at the weights that make this channel (under SwiGLU the gate and up rows that have aligned); "
        "weight decay, clipping or smoothing of that channel stop it",
        "until then keep this GEMM's activation in block scales or in high precision"};
    cause.expect = "the share of the channel stops growing";
    cause.yaml =
        yaml_section("spare_this_gemm", cause.places,
                     "    DisableQuantizationGEMM:\n      enabled: True\n      gemms: [fprop, wgrad]\n");
    causes.push_back(std::move(cause));
  }
  // Where an activation of the block speaks already, its weight is the reason and no second cause.
  const std::size_t activations = causes.size();
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const bool known = std::any_of(
        causes.begin(), causes.begin() + static_cast<std::ptrdiff_t>(activations),
        [&](const Cause& cause) { return block_of(cause.places.front().layer) == block_of(place.layer); });
    std::optional<Cause> cause = known ? std::nullopt : taken_over_by_a_row(place, tensor);
    if (cause) causes.push_back(std::move(*cause));
  }
  return causes;
}

}  // namespace amaxscope::report

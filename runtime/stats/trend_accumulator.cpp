#include "runtime/stats/trend_accumulator.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

enum MaxWord : std::size_t {
  kAmax,
  kLeastHeadroom,
  kNanSeen,
  kInfSeen,
  kMoves,
  kOfCodes,
  kNoHistory,
  kMaxWords
};

double amax_of(const ReducedStat& reduced) { return std::bit_cast<float>(reduced.max[kAmax]); }

/// None: no rank had a finite element other than 0.
std::optional<double> headroom_of(const ReducedStat& reduced) {
  if (reduced.max[kLeastHeadroom] == 0) return std::nullopt;
  return from_order_bits(~reduced.max[kLeastHeadroom]);
}

}  // namespace

const std::vector<std::string>& TrendAccumulator::known_alarms() {
  static const std::vector<std::string> kNames = {"amax_jump", "saturation", "oscillation", "underflow"};
  return kNames;
}

TrendAccumulator::TrendAccumulator(int window, std::set<std::string> alarms, double underflow_percent)
    : window_(window),
      underflow_percent_(underflow_percent),
      counts_underflows_(alarms.contains("underflow")),
      alarms_(std::move(alarms)),
      alarm_text_(fmt::format("{}", fmt::join(alarms_, " "))),
      words_(kMaxWords),
      series_(static_cast<std::size_t>(window)) {
  for (const std::string& alarm : alarms_) {
    AMAXSCOPE_CHECK(std::ranges::find(known_alarms(), alarm) != known_alarms().end(), ErrorCode::kUsage,
                    "\"{}\" is no alarm of a trend; there are {}", alarm, fmt::join(known_alarms(), ", "));
  }
}

void TrendAccumulator::feed(const TensorMoments& moments, const MagnitudeLimit& limit) {
  mark_ran(true);
  const auto raise_to = [this](MaxWord word, std::uint32_t value) {
    words_[word] = std::max(words_[word], value);
  };
  if (moments.amax_finite > 0) {
    raise_to(kAmax, std::bit_cast<std::uint32_t>(moments.amax_finite));
    const double headroom = std::log2(limit.value) - std::log2(double{moments.amax_finite});
    raise_to(kLeastHeadroom, ~order_bits(static_cast<float>(headroom)));
  }
  raise_to(kNanSeen, moments.nan > 0 ? 1U : 0U);
  raise_to(kInfSeen, moments.inf > 0 ? 1U : 0U);
  raise_to(kMoves, limit.moves ? 1U : 0U);
  raise_to(kOfCodes, limit.of_codes ? 1U : 0U);
  raise_to(kNoHistory, limit.no_history ? 1U : 0U);
}

void TrendAccumulator::feed_codes(std::uint64_t underflows, std::uint64_t elements) {
  underflows_ += static_cast<double>(underflows);
  elements_ += static_cast<double>(elements);
}

void TrendAccumulator::pack_sums(std::span<double> out) const {
  if (!counts_underflows_) return;
  out[0] = underflows_;
  out[1] = elements_;
}

std::string TrendAccumulator::id() const {
  const std::string bound = counts_underflows_ ? fmt::format(" above {}%", underflow_percent_) : "";
  return fmt::format("trend {} {}{}", window_, alarm_text_, bound);
}

void TrendAccumulator::reset() {
  underflows_ = elements_ = 0;
  std::ranges::fill(words_, 0U);
  mark_ran(false);
}

std::size_t TrendAccumulator::max_words() const { return kMaxWords; }

void TrendAccumulator::pack_max(std::span<std::uint32_t> out) const {
  std::ranges::copy(words_, out.begin());
}

std::optional<double> TrendAccumulator::steps_to_saturation(const ReducedStat& reduced) const {
  const std::optional<double> headroom = headroom_of(reduced);
  const std::optional<double> slope = series_.slope();
  if (!headroom || !slope || *slope <= 0 || reduced.max[kMoves] != 0) return std::nullopt;
  return std::max(*headroom, 0.0) / *slope;
}

void TrendAccumulator::raise(const std::string& alarm, bool holds, std::string message) {
  if (!holds || alarms_.erase(alarm) == 0) return;
  Finding finding;
  finding.check = alarm;
  finding.what = std::move(message);
  raised_.push_back(std::move(finding));
}

void TrendAccumulator::advance(const ReducedStat& reduced, std::int64_t iteration) {
  raised_.clear();
  if (counts_underflows_ && reduced.sums[1] > 0) {
    const double percent = 100 * reduced.sums[0] / reduced.sums[1];
    raise("underflow", percent > underflow_percent_,
          fmt::format("{:.4g} % of the elements are not 0 and their codes are; the bound is {:.4g} %",
                      percent, underflow_percent_));
  }
  const std::optional<double> headroom = headroom_of(reduced);
  if (!headroom) return;
  const double amax = amax_of(reduced);
  series_.add(iteration, std::log2(amax));
  if (const std::optional<double> jump = series_.jump()) {
    raise("amax_jump", *jump >= kJumpBits,
          fmt::format("amax {:.4g} is {:.2g} times the median of the {} due steps before", amax,
                      std::exp2(*jump), series_.points() - 1));
  }
  raise("oscillation", series_.reversals() >= kReversals,
        fmt::format("amax turned by a factor of two or more {} times in the last {} due steps",
                    series_.reversals(), series_.points()));
  if (reduced.max[kOfCodes] != 0) {
    raise("saturation", *headroom <= kSaturationBits && reduced.max[kNoHistory] == 0,
          fmt::format("amax {:.4g} is {:.2g} times what the format holds under the scale in use", amax,
                      std::exp2(-*headroom)));
  } else if (const std::optional<double> steps = steps_to_saturation(reduced)) {
    raise("saturation", *steps <= static_cast<double>(series_.span()),
          fmt::format(
              "amax {:.4g} doubles every {:.3g} iterations and reaches the largest number of its type in "
              "{:.0f}",
              amax, 1 / *series_.slope(), *steps));
  }
}

std::vector<Finding> TrendAccumulator::findings(const ReducedStat& reduced) const {
  std::vector<Finding> found = raised_;
  for (Finding& finding : found) finding.ranks.assign(reduced.ranks.begin(), reduced.ranks.end());
  return found;
}

std::vector<StatValue> TrendAccumulator::values(const ReducedStat& reduced) const {
  std::vector<std::string> flags;
  if (reduced.max[kNanSeen] != 0) flags.emplace_back("nan_amax");
  if (reduced.max[kInfSeen] != 0) flags.emplace_back("inf_amax");
  std::vector<StatValue> out;
  const auto add = [&](const char* name, std::optional<double> value) {
    if (value) out.push_back({name, *value, flags});
  };
  const std::optional<double> headroom = headroom_of(reduced);
  add("amax_log2_slope", series_.slope());
  if (headroom) add("amax_jump_bits", series_.jump());
  if (series_.points() > 0) add("amax_reversals", series_.reversals());
  if (series_.change_point()) add("amax_change_point", static_cast<double>(*series_.change_point()));
  add("amax_level_shift_bits", series_.shift());
  add("headroom_bits", headroom);
  if (headroom && reduced.max[kNoHistory] != 0) out.back().flags.emplace_back("no_history");
  add("steps_to_saturation", steps_to_saturation(reduced));
  return out;
}

std::vector<std::uint64_t> TrendAccumulator::saved() const {
  std::uint64_t waiting = 0;
  for (std::size_t i = 0; i < known_alarms().size(); ++i) {
    if (alarms_.contains(known_alarms()[i])) waiting |= std::uint64_t{1} << i;
  }
  std::vector<std::uint64_t> words = {waiting};
  for (const double number : series_.saved()) words.push_back(std::bit_cast<std::uint64_t>(number));
  return words;
}

void TrendAccumulator::restore(std::span<const std::uint64_t> words) {
  AMAXSCOPE_CHECK(!words.empty(), ErrorCode::kInput, "a saved trend is empty");
  std::vector<double> numbers;
  for (const std::uint64_t word : words.subspan(1)) numbers.push_back(std::bit_cast<double>(word));
  series_.restore(numbers);
  for (std::size_t i = 0; i < known_alarms().size(); ++i) {
    if ((words[0] >> i & 1U) == 0) alarms_.erase(known_alarms()[i]);
  }
}

}  // namespace amaxscope

#include "runtime/stats/quantization_accumulator.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace amaxscope {

namespace {

// Each flag has a word of its own: a MAX of bit sets is not their union.
constexpr std::array<std::string_view, 4> kScaleFlags = {"zero_amax", "inf_amax", "scale_clamped",
                                                         "no_history"};
constexpr std::string_view kWorst = "worst_blocks";

enum MaxWord : std::size_t {
  kScaleInvMax,
  kScaleInvMin,
  kMaxError,
  kScaleAge,
  kFirstFlag,
  kMaxWords = kFirstFlag + kScaleFlags.size()
};
enum SumWord : std::size_t {
  kNumel,
  kNanCount,
  kCompared,
  kUnderflows,
  kOverflows,
  kSaturated,
  kErrorSquares,
  kSignalSquares,
  kQuantizedSquares,
  kProduct,
  kSaturatedSquares,
  kFlushedSquares,
  kBlocks,
  kZeroBlocks,
  kSaturatedBlocks,
  kFlushedBlocks,
  kRounding,  // nine words
  kSumWords = kRounding + 9
};
/// Of one of the worst blocks.
enum DetailWord : std::size_t { kBlockError, kBlockRow, kBlockCol, kBlockMicrobatch, kDetailWords };

double sqnr(const ReducedStat& r) {
  if (r.sums[kErrorSquares] == 0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(r.sums[kSignalSquares] / r.sums[kErrorSquares]);
}

double cosine(const ReducedStat& r) {
  const double signal = std::sqrt(r.sums[kSignalSquares]);
  const double quantized = std::sqrt(r.sums[kQuantizedSquares]);
  if (signal == 0 && quantized == 0) return 1.0;  // zero for zero: nothing was turned
  if (signal == 0 || quantized == 0) return 0.0;
  return std::clamp(r.sums[kProduct] / signal / quantized, -1.0, 1.0);
}

std::optional<double> percentage(const ReducedStat& r, SumWord part, SumWord whole) {
  if (r.sums[whole] == 0) return std::nullopt;
  return 100.0 * r.sums[part] / r.sums[whole];
}

RoundingSums rounding_of(const ReducedStat& r) {
  const std::span<const double> s = r.sums.subspan(kRounding);
  return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]};
}

std::optional<double> scale_value(std::string_view name, const ReducedStat& r) {
  if (r.max[kScaleInvMax] == 0) return std::nullopt;
  const double smallest{std::bit_cast<float>(~r.max[kScaleInvMin])};
  const double largest{std::bit_cast<float>(r.max[kScaleInvMax])};
  if (name == "scale_inv_min") return smallest;
  if (name == "scale_inv_max") return largest;
  return std::log2(largest / smallest);
}

std::optional<double> block_value(std::string_view name, const ReducedStat& r) {
  if (r.sums[kBlocks] == 0) return std::nullopt;
  if (name == "zero_blocks") return r.sums[kZeroBlocks];
  return percentage(r, name == "saturated_blocks%" ? kSaturatedBlocks : kFlushedBlocks, kBlocks);
}

std::optional<double> value_of(std::string_view name, const ReducedStat& r) {
  if (QuantizationAccumulator::is_about_scale(name)) return scale_value(name, r);
  if (name == "scale_age") {
    if (r.max[kScaleAge] == 0) return std::nullopt;
    return double{static_cast<double>(r.max[kScaleAge]) - 1.0};
  }
  if (r.sums[kNumel] == 0) return std::nullopt;
  if (QuantizationAccumulator::is_about_blocks(name)) return block_value(name, r);
  if (name == "rounding_mean") return rounding_mean(rounding_of(r));
  if (name == "rounding_z") return rounding_z(rounding_of(r));
  if (name == "rounding_correlation") return rounding_correlation(rounding_of(r));
  if (name == "underflows%" || name == "flushed%") return percentage(r, kUnderflows, kNumel);
  if (name == "overflows%") return percentage(r, kOverflows, kNumel);
  if (name == "saturated%") return percentage(r, kSaturated, kNumel);
  if (name == "saturated_energy%") return percentage(r, kSaturatedSquares, kSignalSquares);
  if (name == "flushed_energy%") return percentage(r, kFlushedSquares, kSignalSquares);
  if (r.sums[kCompared] == 0) return std::nullopt;
  if (name == "mse") return r.sums[kErrorSquares] / r.sums[kCompared];
  if (name == "sqnr") return sqnr(r);
  if (name == "cosine") return cosine(r);
  return double{std::bit_cast<float>(r.max[kMaxError])};
}

std::vector<std::string> flags_of(const ReducedStat& r) {
  std::vector<std::string> flags;
  for (std::size_t i = 0; i < kScaleFlags.size(); ++i) {
    if (r.max[kFirstFlag + i] != 0) flags.emplace_back(kScaleFlags[i]);
  }
  if (r.sums[kNanCount] > 0) flags.emplace_back("nan_amax");
  return flags;
}

std::uint32_t word_of(std::int64_t value) noexcept {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, 0, kMost));
}

}  // namespace

const std::vector<std::string>& QuantizationAccumulator::known_names() {
  static const std::vector<std::string> kNames = {"underflows%",
                                                  "overflows%",
                                                  "scale_inv_min",
                                                  "scale_inv_max",
                                                  "mse",
                                                  "sqnr",
                                                  "cosine",
                                                  "max_error",
                                                  "saturated%",
                                                  "flushed%",
                                                  "saturated_energy%",
                                                  "flushed_energy%",
                                                  "zero_blocks",
                                                  "saturated_blocks%",
                                                  "flushed_blocks%",
                                                  "scale_spread",
                                                  std::string(kWorst),
                                                  "scale_age",
                                                  "rounding_mean",
                                                  "rounding_z",
                                                  "rounding_correlation"};
  return kNames;
}

bool QuantizationAccumulator::is_about_blocks(std::string_view name) noexcept {
  return name == "zero_blocks" || name == "saturated_blocks%" || name == "flushed_blocks%" || name == kWorst;
}
bool QuantizationAccumulator::is_about_rounding(std::string_view name) noexcept {
  return name.starts_with("rounding_");
}
bool QuantizationAccumulator::is_about_age(std::string_view name) noexcept { return name == "scale_age"; }
bool QuantizationAccumulator::is_about_scale(std::string_view name) noexcept {
  return name == "scale_inv_min" || name == "scale_inv_max" || name == "scale_spread";
}

QuantizationAccumulator::QuantizationAccumulator(std::string prefix, std::string suffix,
                                                 std::vector<std::string> names, OverflowRule rule)
    : prefix_(std::move(prefix)), suffix_(std::move(suffix)), names_(std::move(names)), rule_(rule) {
  for (const std::string& name : names_) {
    AMAXSCOPE_CHECK(std::ranges::find(known_names(), name) != known_names().end(), ErrorCode::kUsage,
                    "\"{}\" is no statistic of a quantization; there are {}", name,
                    fmt::join(known_names(), ", "));
  }
  reset();
}

void QuantizationAccumulator::feed(const QuantizationSample& sample) {
  mark_ran(true);
  if (!sample.format.empty()) format_ = sample.format;
  if (sample.measured.elements.numel == 0 && !sample.scale_only) return;  // its scale says nothing
  measured_ += sample.measured;
  rounding_ += sample.rounding;
  if (sample.scale_age) scale_age_word_ = std::max(scale_age_word_, word_of(*sample.scale_age + 1));
  for (const WorstBlock& block : sample.measured.worst) {
    if (block.error_squares <= worst_.back().block.error_squares) continue;
    worst_.back() = {block, sample.microbatch};
    std::ranges::stable_sort(worst_, std::greater<>{},
                             [](const Placed& placed) { return placed.block.error_squares; });
  }
  for (const std::string& flag : sample.flags) {
    const auto known = std::ranges::find(kScaleFlags, flag);
    AMAXSCOPE_CHECK(known != kScaleFlags.end(), ErrorCode::kInternal, "unknown flag of a scale: \"{}\"",
                    flag);
    flag_bits_ |= 1U << (known - kScaleFlags.begin());
  }
}

void QuantizationAccumulator::feed(const QuantizationError& error, float scale_inv,
                                   std::span<const std::string> flags) {
  QuantizationSample sample;
  sample.measured.elements = error;
  sample.measured.scale_min = sample.measured.scale_max = scale_inv;
  sample.flags.assign(flags.begin(), flags.end());
  feed(sample);
}

std::string QuantizationAccumulator::id() const {
  return fmt::format("quantization {}*{} {}{}", prefix_, suffix_, fmt::join(names_, " "),
                     rule_ == OverflowRule::kAboveMaximum ? " above_maximum" : "");
}

void QuantizationAccumulator::reset() {
  measured_ = {};
  scale_age_word_ = 0;
  rounding_ = {};
  worst_ = {};
  flag_bits_ = 0;
  format_.clear();
  mark_ran(false);
}

std::size_t QuantizationAccumulator::max_words() const { return kMaxWords; }
std::size_t QuantizationAccumulator::sum_words() const { return kSumWords; }

void QuantizationAccumulator::pack_max(std::span<std::uint32_t> out) const {
  // Magnitudes: their patterns are ordered as they are.
  out[kScaleInvMax] = std::bit_cast<std::uint32_t>(measured_.scale_max);
  out[kScaleInvMin] = ~std::bit_cast<std::uint32_t>(measured_.scale_min);
  out[kMaxError] = std::bit_cast<std::uint32_t>(measured_.elements.max_error);
  out[kScaleAge] = scale_age_word_;
  for (std::size_t i = 0; i < kScaleFlags.size(); ++i) out[kFirstFlag + i] = (flag_bits_ >> i) & 1U;
}

void QuantizationAccumulator::pack_sums(std::span<double> out) const {
  const QuantizationError& error = measured_.elements;
  out[kNumel] = static_cast<double>(error.numel);
  out[kNanCount] = static_cast<double>(error.nan);
  out[kCompared] = static_cast<double>(error.compared);
  out[kUnderflows] = static_cast<double>(error.underflows);
  out[kOverflows] =
      static_cast<double>(rule_ == OverflowRule::kAboveMaximum ? error.overflows : error.saturated);
  out[kSaturated] = static_cast<double>(error.saturated);
  out[kErrorSquares] = error.error_squares;
  out[kSignalSquares] = error.signal_squares;
  out[kQuantizedSquares] = error.quantized_squares;
  out[kProduct] = error.product;
  out[kSaturatedSquares] = error.saturated_squares;
  out[kFlushedSquares] = error.flushed_squares;
  out[kBlocks] = static_cast<double>(measured_.blocks);
  out[kZeroBlocks] = static_cast<double>(measured_.zero_blocks);
  out[kSaturatedBlocks] = static_cast<double>(measured_.saturated_blocks);
  out[kFlushedBlocks] = static_cast<double>(measured_.flushed_blocks);
  const RoundingSums& r = rounding_;
  const std::array<double, 9> rounding = {r.count,    r.sum,     r.squares,          r.pairs,
                                          r.previous, r.current, r.previous_squares, r.current_squares,
                                          r.products};
  std::ranges::copy(rounding, out.begin() + kRounding);
}

bool QuantizationAccumulator::asks_for_worst_blocks() const noexcept {
  return std::ranges::find(names_, kWorst) != names_.end();
}

std::size_t QuantizationAccumulator::detail_words(const ReducedStat& reduced) const {
  const bool wanted = asks_for_worst_blocks() && reduced.sums[kBlocks] > 0 && reduced.sums[kErrorSquares] > 0;
  return wanted ? kWorstBlocks * kDetailWords : 0;
}

void QuantizationAccumulator::pack_details(std::span<std::uint32_t> out) const {
  for (std::size_t i = 0; i < worst_.size(); ++i) {
    const std::span<std::uint32_t> words = out.subspan(i * kDetailWords, kDetailWords);
    words[kBlockError] = std::bit_cast<std::uint32_t>(static_cast<float>(worst_[i].block.error_squares));
    words[kBlockRow] = word_of(worst_[i].block.row);
    words[kBlockCol] = word_of(worst_[i].block.col);
    words[kBlockMicrobatch] = word_of(worst_[i].microbatch);
  }
}

void QuantizationAccumulator::add_worst(const ReducedStat& r, std::vector<StatValue>& out) const {
  struct Found {
    double error;
    std::span<const std::uint32_t> words;
    int rank;
  };
  std::vector<Found> found;
  for (std::size_t i = 0; (i + 1) * kDetailWords <= r.details.size(); ++i) {
    const std::span<const std::uint32_t> words = r.details.subspan(i * kDetailWords, kDetailWords);
    const double error{std::bit_cast<float>(words[kBlockError])};
    if (error > 0) found.push_back({error, words, r.ranks[i / kWorstBlocks]});
  }
  std::ranges::stable_sort(found, std::greater<>{}, &Found::error);
  found.resize(std::min(found.size(), kWorstBlocks));
  int place = 0;
  for (const Found& block : found) {
    const std::string name = fmt::format("{}worst_block_{}_", prefix_, ++place);
    const auto add = [&](std::string_view what, double value) {
      out.push_back({fmt::format("{}{}{}", name, what, suffix_), value});
    };
    add("error%", 100.0 * block.error / r.sums[kErrorSquares]);
    add("row", static_cast<double>(block.words[kBlockRow]));
    add("col", static_cast<double>(block.words[kBlockCol]));
    add("rank", static_cast<double>(block.rank));
    add("microbatch", static_cast<double>(block.words[kBlockMicrobatch]));
  }
}

std::vector<StatValue> QuantizationAccumulator::values(const ReducedStat& reduced) const {
  const std::vector<std::string> flags = flags_of(reduced);
  std::vector<StatValue> out;
  for (const std::string& name : names_) {
    if (name == kWorst) {
      add_worst(reduced, out);
      continue;
    }
    const std::optional<double> value = value_of(name, reduced);
    if (!value) continue;
    out.push_back({prefix_ + name + suffix_, *value, flags});
    if (name == "sqnr" && *value == std::numeric_limits<double>::infinity())
      out.back().flags.emplace_back("exact");
  }
  for (StatValue& value : out) value.format = format_;
  return out;
}

}  // namespace amaxscope

#include "runtime/stats/quantization_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/error.hpp"

namespace amaxscope {

namespace {

// Each flag has a word of its own: a MAX of bit sets is not their union.
constexpr std::array<std::string_view, 4> kScaleFlags = {"zero_amax", "inf_amax", "scale_clamped",
                                                         "no_history"};

enum MaxWord : std::size_t {
  kScaleInvMax,
  kScaleInvMin,
  kMaxError,
  kFirstFlag,
  kMaxWords = kFirstFlag + kScaleFlags.size()
};
enum SumWord : std::size_t {
  kNumel,
  kNanCount,
  kUnderflows,
  kOverflows,
  kErrorSquares,
  kSignalSquares,
  kQuantizedSquares,
  kProduct,
  kSumWords
};

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

std::optional<double> value_of(std::string_view name, const ReducedStat& r) {
  const double numel = r.sums[kNumel];
  if (name == "underflows%") return 100.0 * r.sums[kUnderflows] / numel;
  if (name == "overflows%") return 100.0 * r.sums[kOverflows] / numel;
  if (name == "scale_inv_min") return double{std::bit_cast<float>(~r.max[kScaleInvMin])};
  if (name == "scale_inv_max") return double{std::bit_cast<float>(r.max[kScaleInvMax])};
  const double compared = numel - r.sums[kNanCount];
  if (compared == 0) return std::nullopt;
  if (name == "mse") return r.sums[kErrorSquares] / compared;
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

}  // namespace

const std::vector<std::string>& QuantizationAccumulator::known_names() {
  static const std::vector<std::string> kNames = {
      "underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse", "sqnr", "cosine", "max_error"};
  return kNames;
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

void QuantizationAccumulator::feed(const QuantizationError& error, float scale_inv,
                                   std::span<const std::string> flags) {
  mark_ran(true);
  if (error.numel == 0) return;  // the scale of no element says nothing
  error_ += error;
  scale_inv_min_ = std::min(scale_inv_min_, scale_inv);
  scale_inv_max_ = std::max(scale_inv_max_, scale_inv);
  for (const std::string& flag : flags) {
    const auto known = std::ranges::find(kScaleFlags, flag);
    AMAXSCOPE_CHECK(known != kScaleFlags.end(), ErrorCode::kInternal, "unknown flag of a scale: \"{}\"",
                    flag);
    flag_bits_ |= 1U << (known - kScaleFlags.begin());
  }
}

std::string QuantizationAccumulator::id() const {
  return fmt::format("quantization {}*{} {}{}", prefix_, suffix_, fmt::join(names_, " "),
                     rule_ == OverflowRule::kAboveMaximum ? " above_maximum" : "");
}

void QuantizationAccumulator::reset() {
  error_ = QuantizationError();
  scale_inv_min_ = std::numeric_limits<float>::infinity();
  scale_inv_max_ = 0;
  flag_bits_ = 0;
  mark_ran(false);
}

std::size_t QuantizationAccumulator::max_words() const { return kMaxWords; }
std::size_t QuantizationAccumulator::sum_words() const { return kSumWords; }

void QuantizationAccumulator::pack_max(std::span<std::uint32_t> out) const {
  // Magnitudes: their patterns are ordered as they are.
  out[kScaleInvMax] = std::bit_cast<std::uint32_t>(scale_inv_max_);
  out[kScaleInvMin] = ~std::bit_cast<std::uint32_t>(scale_inv_min_);
  out[kMaxError] = std::bit_cast<std::uint32_t>(error_.max_error);
  for (std::size_t i = 0; i < kScaleFlags.size(); ++i) out[kFirstFlag + i] = (flag_bits_ >> i) & 1U;
}

void QuantizationAccumulator::pack_sums(std::span<double> out) const {
  out[kNumel] = static_cast<double>(error_.numel);
  out[kNanCount] = static_cast<double>(error_.nan);
  out[kUnderflows] = static_cast<double>(error_.underflows);
  out[kOverflows] =
      static_cast<double>(rule_ == OverflowRule::kAboveMaximum ? error_.overflows : error_.saturated);
  out[kErrorSquares] = error_.error_squares;
  out[kSignalSquares] = error_.signal_squares;
  out[kQuantizedSquares] = error_.quantized_squares;
  out[kProduct] = error_.product;
}

std::vector<StatValue> QuantizationAccumulator::values(const ReducedStat& reduced) const {
  if (reduced.sums[kNumel] == 0) return {};
  const std::vector<std::string> flags = flags_of(reduced);
  std::vector<StatValue> out;
  for (const std::string& name : names_) {
    const std::optional<double> value = value_of(name, reduced);
    if (!value) continue;
    out.push_back({prefix_ + name + suffix_, *value, flags});
    if (name == "sqnr" && *value == std::numeric_limits<double>::infinity())
      out.back().flags.emplace_back("exact");
  }
  return out;
}

}  // namespace amaxscope

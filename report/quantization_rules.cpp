#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr double kFormatGap = 4.0;        ///< dB between E5M2 and E4M3 are 6
constexpr double kScaleGap = 6.0;         ///< dB: a bit
constexpr double kEnergy = 1.0;           ///< percent
constexpr double kSaturatedBlocks = 5.0;  ///< percent
constexpr double kCorrelation = 0.2;      ///< 0.5 when repeated, noise 0.016
constexpr std::size_t kInARow = 3;
constexpr std::size_t kLasting =
    6;  ///< points; a scale with a history lags in up to three while a model warms up
constexpr std::int64_t kSpan = 30;  ///< iterations, the same

/// The same statistic of the running codes: NVFP4 has its own name for it.
const Series* running_sqnr(const TensorSeries& tensor) {
  return tensor.find(tensor.recipe == "nvfp4" ? "nvfp4_sqnr" : "sqnr");
}

/// Points that a series keeps for a sentence: first, last, and two between.
std::vector<Point> excerpt(std::span<const Point> points) {
  if (points.size() <= 4) return {points.begin(), points.end()};
  const std::size_t last = points.size() - 1;
  return {points[0], points[last / 3], points[2 * last / 3], points[last]};
}

/// Values of `better` less those of `running` at the same iterations.
std::vector<Point> gap(const Series* better, const Series* running) {
  std::vector<Point> differences;
  if (better == nullptr || running == nullptr) return differences;
  const auto points = better->points();
  auto at = points.begin();
  for (const Point& point : running->points()) {
    while (at != points.end() && at->iteration < point.iteration) ++at;
    if (at != points.end() && at->iteration == point.iteration && std::isfinite(at->value - point.value)) {
      differences.push_back({point.iteration, at->value - point.value});
    }
  }
  return differences;
}

Cause begun(const char* kind, Confidence confidence, std::int64_t iteration) {
  Cause cause;
  cause.kind = kind;
  cause.confidence = confidence;
  cause.iteration = iteration;
  cause.sampled = true;
  return cause;
}

/// Adds the place; the earliest iteration counts.
void join(std::optional<Cause>& cause, Cause other) {
  if (!cause) {
    cause = std::move(other);
    return;
  }
  cause->iteration = std::min(cause->iteration, other.iteration);
  cause->places.insert(cause->places.end(), other.places.begin(), other.places.end());
}

std::vector<Cause> list_of(std::optional<Cause> cause) {
  if (!cause) return {};
  return {std::move(*cause)};
}

bool starts_with(const std::string& text, std::string_view prefix) { return text.starts_with(prefix); }

}  // namespace

std::vector<Cause> coarse_formats(const Evidence& evidence) {
  std::optional<Cause> all;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const bool blocks = tensor.recipe == "mxfp8" || tensor.recipe == "block";
    // E5M2 gradients are what per-tensor recipes do; E5M2 in the forward, and under block scales, nobody's
    // default.
    if (!blocks && place.tensor == "gradient") continue;
    const auto coarse =
        std::ranges::find_if(tensor.formats, [](const auto& f) { return starts_with(f.first, "E5M2"); });
    if (coarse == tensor.formats.end() || tensor.recipe == "nvfp4") continue;
    const Series* finer = nullptr;
    for (const auto& [stat, format] : tensor.what_ifs) {
      if (finer == nullptr && starts_with(format, "E4M3") && stat.ends_with("sqnr"))
        finer = tensor.find(stat);
    }
    const std::vector<Point> differences = gap(finer, running_sqnr(tensor));
    const double decibels = median(differences);
    if (!differences.empty() && decibels < kFormatGap) continue;
    Cause cause =
        begun("format", differences.empty() ? Confidence::kPossible : Confidence::kCertain, coarse->second);
    cause.sampled = coarse->second != 0;
    cause.places = {place};
    cause.gemms = gemms_of(place.tensor, "");
    if (!differences.empty()) {
      cause.why = {fmt::format(
          "the same values in E4M3 would keep {:.1f} dB more ({}); the scales are as they should be",
          decibels, named({place}))};
      cause.series = excerpt(differences);
      cause.series_name = "dB lost to the format";
    } else {
      cause.why = {
          "what E4M3 would give was not measured: add fp8_block_scaling_sqnr and sqnr to LogFp8TensorStats"};
    }
    join(all, std::move(cause));
  }
  if (all) {
    all->sentence = fmt::format("E5M2 codes where the recipe's format is E4M3: {}", named(all->places));
    all->actions = {"configure E4M3 for these tensors (block scales give the range that E5M2 is chosen for)"};
    all->expect = "6 dB more signal to noise in these tensors";
    all->yaml = yaml_section(
        "compare_formats", all->places,
        "    LogFp8TensorStats:\n      enabled: True\n      tensors: [activation, gradient]\n      "
        "stats: [sqnr, fp8_block_scaling_sqnr]\n      freq: 10\n");
  }
  return list_of(std::move(all));
}

std::vector<Cause> lost_energy(const Evidence& evidence) {
  std::optional<Cause> saturated;
  std::optional<Cause> flushed;
  std::optional<Cause> worse;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const auto above = [&](const char* stat, double limit) -> const Point* {
      const Series* series = tensor.find(stat);
      return series != nullptr ? first_run_above(series->points(), limit, kLasting, kSpan) : nullptr;
    };
    const auto note = [&](std::optional<Cause>& into, const char* kind, const char* stat,
                          const Point& since) {
      Cause cause = begun(kind, Confidence::kLikely, since.iteration);
      cause.places = {place};
      cause.series = excerpt(tensor.find(stat)->points());
      cause.series_name = fmt::format("{} of {}", stat, named({place}));
      join(into, std::move(cause));
    };
    if (const Point* since = above("saturated_energy%", kEnergy)) {
      note(saturated, "saturation", "saturated_energy%", *since);
    } else if (const Point* many = above("saturated_blocks%", kSaturatedBlocks)) {
      note(saturated, "saturation", "saturated_blocks%", *many);
    }
    if (const Point* since = above("flushed_energy%", kEnergy))
      note(flushed, "flush", "flushed_energy%", *since);
    // The same format under a scale of its own amax: what is lost beyond it is lost to the scale.
    const char* own = tensor.recipe == "mxfp8" ? "fp8_block_scaling_sqnr" : "fp8_current_scaling_sqnr";
    const std::vector<Point> differences = gap(tensor.find(own), running_sqnr(tensor));
    const auto format = tensor.what_ifs.find(own);
    const bool same_format = format != tensor.what_ifs.end() && tensor.formats.size() == 1 &&
                             format->second.substr(0, 4) == tensor.formats.begin()->first.substr(0, 4);
    const Point* since = same_format ? first_run_above(differences, kScaleGap, kLasting, kSpan) : nullptr;
    if (since != nullptr) {
      Cause cause = begun("scale_worse_than_recipe", Confidence::kLikely, since->iteration);
      cause.places = {place};
      cause.series = excerpt(differences);
      cause.series_name = fmt::format("dB that a scale of its own amax would save, {}", named({place}));
      join(worse, std::move(cause));
    }
  }
  std::vector<Cause> causes;
  const auto finish = [&](std::optional<Cause>& cause, const char* what, const char* why,
                          const char* action) {
    if (!cause) return;
    cause->sentence = fmt::format("{} {}", what, named(cause->places));
    cause->gemms = gemms_of(cause->places.front().tensor, "");
    cause->why.emplace_back(why);
    cause->actions = {action};
    cause->expect = "the share goes to 0, and the signal-to-noise ratio to that of the what-if";
    cause->yaml = yaml_section("scales_of_their_own_amax", cause->places,
                               "    RecipeOverride:\n      enabled: True\n      recipe: current\n"
                               "      gemms_struct:\n"
                               "        - {gemm: fprop, tensors: [activation, weight]}\n"
                               "        - {gemm: dgrad, tensors: [gradient, weight]}\n"
                               "        - {gemm: wgrad, tensors: [gradient, activation]}\n");
    causes.push_back(std::move(*cause));
  };
  finish(
      saturated, "due step after due step energy is cut off at the largest code:",
      "six due iterations or more in a row, beyond what a first step without a history or one spike explains",
      "give these tensors a scale of their own amax (current scaling), or look at why their amax outruns "
      "its history");
  finish(flushed, "due step after due step energy is rounded to zero:",
         "counted as a share of the sum of squares: not the many small elements, but what carries the tensor",
         "give these tensors finer scales (block scaling) or more range (E5M2)");
  finish(worse, "the scale in use loses more than 6 dB against one made from the tensor's own amax:",
         "the what-if has the same format and the same values: what differs is the scale",
         "look at how the scale is made; under delayed scaling a spike in the history holds it down for the "
         "history's "
         "length");
  return causes;
}

std::vector<Cause> repeated_rounding(const Evidence& evidence) {
  std::optional<Cause> all;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const Series* correlation = tensor.find("nvfp4_rounding_correlation");
    // Rounding to nearest repeats where values do; only what is rounded at random must not.
    if (correlation == nullptr || tensor.recipe != "nvfp4" || place.tensor != "gradient") continue;
    const Point* since = first_run_above(correlation->points(), kCorrelation, kInARow, 0);
    if (since == nullptr) continue;
    Cause cause = begun("rounding_repeats", Confidence::kCertain, since->iteration);
    // The first value compares with the due iteration before it, which had these numbers already.
    if (since == correlation->points().data() && tensor.formats.size() == 1)
      cause.iteration = tensor.formats.begin()->second;
    cause.places = {place};
    cause.gemms = gemms_of(place.tensor, "");
    cause.series = excerpt(correlation->points());
    cause.series_name = fmt::format("correlation of rounding errors, {}", named({place}));
    join(all, std::move(cause));
  }
  if (all) {
    all->sentence = fmt::format("stochastic rounding repeats its random numbers from step to step: {}",
                                named(all->places));
    all->why = {
        "rounding errors correlate by about 0.5 with those of the step before; fresh random numbers give 0 "
        "whatever the tensor does",
        "the error of one step is no worse than it should be: signal-to-noise ratios cannot show this"};
    all->actions = {"advance the seed or offset of stochastic rounding with every call"};
    all->expect = "correlation within 0.05 of 0";
    all->yaml =
        yaml_section("rounding", all->places,
                     "    LogNvfp4TensorStats:\n      enabled: True\n      tensors: [gradient]\n      stats: "
                     "[rounding_correlation]\n      freq: 10\n");
  }
  return list_of(std::move(all));
}

}  // namespace amaxscope::report

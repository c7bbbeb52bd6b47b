#include <fmt/format.h>

#include <cmath>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kInARow = 2;
constexpr double kShare = 60.0;  ///< percent of a GEMM's error that is the accumulation's
constexpr double kError = 0.01;  ///< relative; less is what a correct sum leaves
const double kNoise = 1 / std::sqrt(3.0);

/// Adds the place to the cause; the earliest iteration counts.
void join(Cause& cause, const Place& place, const Series& series, const Point& since, const char* name) {
  if (cause.places.empty()) {
    cause.iteration = since.iteration;
    cause.series.assign(series.points().begin(),
                        series.points().begin() +
                            static_cast<std::ptrdiff_t>(std::min<std::size_t>(4, series.points().size())));
    cause.series_name = fmt::format("{} of {}", name, named({place}));
    cause.gemms = gemms_of(place.tensor, "");
  }
  cause.iteration = std::min(cause.iteration, since.iteration);
  cause.places.push_back(place);
}

}  // namespace

std::vector<Cause> gemm_errors(const Evidence& evidence) {
  Cause sums;
  Cause noise;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const Series* share = tensor.find("error_from_accumulation%");
    const Series* error = tensor.find("relative_error");
    if (share != nullptr && error != nullptr && median(error->points()) > kError) {
      if (const Point* since = first_run_above(share->points(), kShare, kInARow, 0)) {
        join(sums, place, *share, *since, "percent of the error from accumulation");
      }
    }
    const Series* level = tensor.find("gradient_noise");
    const Point* since = level != nullptr ? first_run_above(level->points(), kNoise, kInARow, 0) : nullptr;
    if (since != nullptr) join(noise, place, *level, *since, "gradient_noise");
  }
  std::vector<Cause> causes;
  if (!sums.places.empty()) {
    sums.kind = "accumulation";
    sums.sentence =
        fmt::format("GEMMs lose more in their sums than in their operands: {}", named(sums.places));
    sums.why = {
        "the error was split: operands quantized as they are, and multiplied exactly, would give much less",
        "statistics of operands cannot show this"};
    sums.actions = {
        "accumulate in f32 (promote partial sums more often), or look at what modifies the result"};
    sums.expect = "error_from_accumulation% near 0";
    causes.push_back(std::move(sums));
  }
  if (!noise.places.empty()) {
    noise.kind = "gradient_noise";
    noise.confidence = Confidence::kLikely;
    noise.sentence = fmt::format("the error of weight gradients is more than 1/sqrt(3) of the gradient: {}",
                                 named(noise.places));
    noise.why = {"beyond this line training in low precision is known to stall"};
    noise.actions = {"keep the wgrad of these layers in high precision, or give its operands finer scales"};
    noise.expect = "gradient_noise below 0.58";
    noise.yaml = yaml_section("wgrad_in_high_precision", noise.places,
                              "    DisableQuantizationGEMM:\n      enabled: True\n      gemms: [wgrad]\n");
    causes.push_back(std::move(noise));
  }
  for (Cause& cause : causes) cause.sampled = true;
  return causes;
}

}  // namespace amaxscope::report

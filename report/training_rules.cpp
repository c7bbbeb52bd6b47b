#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kInARow = 3;
constexpr std::int64_t kSpan = 10;
constexpr double kLost = 20.0;          ///< percent of the updates of a parameter
constexpr std::size_t kWindow = 16;     ///< steps that a jump is compared with
constexpr double kGradientJump = 10.0;  ///< times; one alone is no sign, healthy runs have them
constexpr double kLossJump = 1.5;
constexpr double kStays = 1.2;  ///< times, for as many steps as
constexpr std::size_t kLasting = 4;
constexpr std::int64_t kSoon = 10;  ///< iterations from a gradient jump to its loss

std::span<const Point> part(std::span<const Point> points, std::size_t first, std::size_t end) {
  return points.subspan(first, end - first);
}

struct Jump {
  std::int64_t iteration = 0;
  double times = 0;
};

/// The first point that is `limit` times the median of the window before it, and with `lasting` more points
/// after it that stay above a fifth more than that median: one odd batch is no spike.
std::optional<Jump> first_jump(const Series* series, double limit, std::int64_t from, std::size_t lasting) {
  if (series == nullptr) return std::nullopt;
  const auto points = series->points();
  for (std::size_t i = kWindow / 2; i < points.size(); ++i) {
    if (points[i].iteration < from) continue;
    const double before = median(part(points, i > kWindow ? i - kWindow : 0, i));
    if (!(before > 0) || !(points[i].value > limit * before)) continue;
    const auto after = part(points, i + 1, std::min(points.size(), i + 1 + lasting));
    if (std::ranges::all_of(after, [&](const Point& p) { return p.value > kStays * before; })) {
      return Jump{points[i].iteration, points[i].value / before};
    }
  }
  return std::nullopt;
}

std::vector<Point> around(const Series& series, std::int64_t iteration) {
  std::vector<Point> points;
  const auto all = series.points();
  const auto at = std::ranges::find_if(all, [&](const Point& p) { return p.iteration >= iteration; });
  const auto index = static_cast<std::size_t>(at - all.begin());
  for (std::size_t i = index > 1 ? index - 2 : 0; i < std::min(all.size(), index + 3); ++i)
    points.push_back(all[i]);
  return points;
}

}  // namespace

std::vector<Cause> lost_updates(const Evidence& evidence) {
  Cause cause;
  cause.kind = "lost_updates";
  cause.sampled = true;
  double worst = 0;
  std::int64_t first = 0;
  std::size_t measured = 0;
  for (const auto* entry : evidence.in_order()) {
    const auto& [place, tensor] = *entry;
    const Series* lost = tensor.find("lost_updates%");
    if (lost != nullptr) ++measured;
    const Point* since = lost != nullptr ? first_run_above(lost->points(), kLost, kInARow, kSpan) : nullptr;
    if (since == nullptr) continue;
    first = cause.places.empty() ? since->iteration : std::min(first, since->iteration);
    const double share = median(lost->points());
    if (cause.places.empty() || share > worst) {
      worst = share;
      cause.series = a_few_of(lost->points());
      cause.series_name = fmt::format("percent of the updates lost, {}", named({place}));
    }
    cause.places.push_back(place);
  }
  // One parameter may have next to no gradient, and at a tiny learning rate f32 is too coarse for those near
  // 1; storage that is too coarse is too coarse for many.
  if (cause.places.size() < std::max<std::size_t>(3, (measured + 2) / 3)) return {};
  cause.iteration = first;
  cause.sampled = first != 0;
  cause.sentence = fmt::format("updates vanish in the rounding of the stored weights: {} (up to {:.0f} %)",
                               named(cause.places), worst);
  cause.why = {
      "these updates are smaller than half a step of the weight as it is stored: adding them changes nothing",
      "gradients and scales are not involved: quantization of GEMM operands does not touch the stored "
      "weights"};
  cause.actions = {"keep f32 master weights for the optimizer (or round the sum stochastically)"};
  cause.expect = "lost_updates% near 0; the loss goes on falling at small learning rates";
  cause.yaml =
      "updates:\n  enabled: True\n  observe: .\n  transformer_engine:\n    LogTensorStats:\n      enabled: "
      "True\n      "
      "stats: [lost_updates%, update_ratio]\n      freq: 10\n";
  return {cause};
}

std::vector<Cause> training_trouble(const Evidence& evidence) {
  const Series* const loss = evidence.scalar("loss");
  const Series* const norm = evidence.scalar("grad_norm");
  if (loss == nullptr) return {};
  const auto losses = loss->points();
  const auto broken = std::ranges::find_if(losses, [](const Point& p) { return !std::isfinite(p.value); });
  const auto spike = first_jump(loss, kLossJump, 0, kLasting);
  const auto gradients = spike ? first_jump(norm, kGradientJump, spike->iteration - kSoon, 0) : std::nullopt;
  Cause cause;
  cause.places = {{"", ""}};
  if (broken != losses.end()) {
    cause.kind = "divergence";
    cause.outcome = Outcome::kCannotTell;
    cause.confidence = Confidence::kPossible;
    cause.iteration = broken->iteration;
    cause.sentence = "the loss is not finite any more";
    cause.series = around(*loss, broken->iteration);
    cause.series_name = "loss";
    cause.actions = {"run again with `--preset nan`: it names the first tensor with a NaN or Inf"};
    return {cause};
  }
  if (gradients && gradients->iteration < spike->iteration) {
    cause.kind = "optimizer_spike";
    cause.outcome = Outcome::kNotPrecision;
    cause.confidence = Confidence::kLikely;
    cause.iteration = gradients->iteration;
    cause.sentence = fmt::format(
        "a jump of the gradients ({:.0f} times) at iteration {}, then of the loss ({:.1f} times) at {}",
        gradients->times, gradients->iteration, spike->times, spike->iteration);
    cause.series = around(*norm, gradients->iteration);
    cause.series_name = "grad_norm";
    cause.why = {
        "before it no equality was broken, no tensor lost energy to its format and no value was not finite: "
        "quantization did what it does in healthy steps",
        "the gradient moved first and the loss followed: the optimizer took a step that its second moments "
        "had "
        "not caught up with"};
    cause.actions = {
        "look at the batch of that iteration, at clipping and at Adam's beta2; a run in high precision from "
        "the last good state should spike, too"};
    cause.expect = "the spike is there in high precision as well, or gone with clipping";
    return {cause};
  }
  const Point best = *std::ranges::min_element(losses, {}, &Point::value);
  const std::size_t tail = losses.size() / 4;
  if (tail < kInARow) return {};
  const double now = median(part(losses, losses.size() - tail, losses.size()));
  if (!(now > kLossJump * best.value) || now - best.value < 1.0) return {};
  cause.kind = "divergence";
  cause.outcome = Outcome::kNotPrecision;
  cause.confidence = Confidence::kPossible;
  cause.iteration = best.iteration;
  cause.sentence = fmt::format("the loss left its best value {:.4g} of iteration {} and is at {:.4g}",
                               best.value, best.iteration, now);
  cause.series = around(*loss, best.iteration);
  cause.series_name = "loss";
  cause.why = {
      "nothing that was measured explains it: no broken equality, no lost energy, no value that is not "
      "finite"};
  cause.actions = {
      "look at the learning rate and at the data; `amaxscope train --recipe none` with the same options is "
      "the control"};
  cause.expect = "the control diverges as well";
  return {cause};
}

}  // namespace amaxscope::report

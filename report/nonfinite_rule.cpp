#include <fmt/format.h>

#include <algorithm>

#include "report/rules.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

/// Within an iteration: what a step does first can be the cause of what it does later.
int order_in_step(const Found& found) {
  if (found.first.tensor == "update" || found.first.tensor == "parameter") return 2;
  return found.first.phase == "backward" ? 1 : 0;
}

Cause common_part() {
  Cause cause;
  cause.kind = "nonfinite";
  cause.actions = {
      "look into nonfinite/ and events/ of the log directory; if they are not there, start again with "
      "`--preset nan` from a state before that iteration"};
  cause.expect = "the dump holds the tensor and what went into it; no NaN or Inf once its source is gone";
  return cause;
}

Cause from_guard(const Found& found) {
  Cause cause = common_part();
  cause.iteration = found.first.iteration;
  cause.places = {{found.first.layer, found.first.tensor}};
  cause.ranks.assign(found.ranks.begin(), found.ranks.end());
  cause.phase = found.first.phase;
  const std::string& what = found.first.what;
  const bool codes_only = what.find("the tensor is finite") != std::string::npos;
  const std::string copy = what.find("columnwise") != std::string::npos ? "columnwise"
                           : what.find("rowwise") != std::string::npos  ? "rowwise"
                                                                        : "";
  cause.gemms = gemms_of(found.first.tensor, copy);
  cause.sentence = fmt::format("the first NaN or Inf of the run is in {}, on {}", named(cause.places),
                               named_ranks(cause.ranks));
  cause.why = {printable(what)};
  cause.why.emplace_back(
      codes_only ? "the values are finite and their codes are not: made by the cast, or written over "
                   "afterwards; the data is not to blame"
                 : "every selected tensor of every rank is looked at in the order of the program: "
                   "nothing before it had one");
  return cause;
}

}  // namespace

std::vector<Cause> nonfinite_values(const Evidence& evidence) {
  const Found* first = nullptr;
  for (const auto& [key, found] : evidence.findings()) {
    if (found.first.check != "first non-finite") continue;
    const auto when = [](const Found& of) {
      return std::tuple(of.first.iteration, order_in_step(of), of.order);
    };
    if (first == nullptr || when(found) < when(*first)) first = &found;
  }
  const std::pair<const Place, TensorSeries>* counted = nullptr;
  for (const auto* entry : evidence.in_order()) {
    if (!entry->second.nonfinite) continue;
    if (counted == nullptr || *entry->second.nonfinite < *counted->second.nonfinite) counted = entry;
  }
  if (first != nullptr && (counted == nullptr || *counted->second.nonfinite >= first->first.iteration)) {
    return {from_guard(*first)};
  }
  if (counted == nullptr) return {};
  Cause cause = common_part();
  cause.confidence = Confidence::kLikely;
  cause.iteration = *counted->second.nonfinite;
  cause.sampled = true;
  cause.places = {counted->first};
  cause.sentence =
      fmt::format("there are NaN or Inf values; the first that was counted is in {}", named(cause.places));
  cause.why = {
      "statistics are taken at due iterations only, after the step: the first of all may be another"};
  cause.yaml =
      yaml_section("first_nan", {},
                   "    NonFiniteGuard:\n      enabled: True\n      tensors: [activation, weight, gradient, "
                   "output, wgrad, dgrad]\n      action: dump\n");
  return {cause};
}

}  // namespace amaxscope::report

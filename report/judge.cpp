#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "report/coverage.hpp"
#include "report/rules.hpp"
#include "report/verdict.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

void append(std::vector<Cause>& to, std::vector<Cause> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

/// What must hold exactly speaks before what is a matter of degree, and the earlier before the later.
std::vector<Cause> precision_causes(const Evidence& evidence) {
  std::vector<Cause> exact = nonfinite_values(evidence);
  append(exact, broken_invariants(evidence));
  std::ranges::stable_sort(exact, {}, &Cause::iteration);
  std::vector<Cause> rest = coarse_formats(evidence);
  append(rest, repeated_rounding(evidence));
  append(rest, lost_updates(evidence));
  append(rest, outlier_channels(evidence));
  append(rest, lost_energy(evidence));
  append(rest, gemm_errors(evidence));
  append(exact, std::move(rest));
  return exact;
}

/// The ranks that hold a channel: those of the tensor's group with this place in their tensor-parallel group,
/// whose ranks follow one another (collectives/process_groups.hpp).
void name_ranks(Cause& cause, const Evidence& evidence, const Reading& reading) {
  if (!cause.tp_rank || reading.runs.empty()) return;
  const auto& parallel = reading.runs.back().parallel;
  const auto tp = parallel.find("tp");
  const auto tensor = evidence.tensors().find(cause.places.front());
  if (tp == parallel.end() || tp->second < 2 || tensor == evidence.tensors().end() || !tensor->second.group)
    return;
  for (const std::int64_t rank : evidence.group(*tensor->second.group)) {
    if (rank % tp->second == *cause.tp_rank) cause.ranks.push_back(rank);
  }
}

/// Names of checks and kinds that found something.
std::vector<std::string> found_by(const Evidence& evidence, const std::vector<Cause>& causes) {
  std::vector<std::string> names;
  for (const auto& [key, found] : evidence.findings()) names.push_back(found.first.check);
  for (const Cause& cause : causes) names.push_back(cause.kind);
  return names;
}

/// Alarms of Trends: what moved, and no cause by itself.
void add_alarms(const Evidence& evidence, std::vector<Moved>& moved) {
  for (const char* alarm : {"amax_jump", "saturation", "oscillation", "underflow"}) {
    const Found* first = nullptr;
    for (const auto& [key, found] : evidence.findings()) {
      if (found.first.check == alarm &&
          (first == nullptr || found.first.iteration < first->first.iteration)) {
        first = &found;
      }
    }
    if (first == nullptr) continue;
    moved.push_back({first->first.iteration,
                     fmt::format("{}: {}", alarm, named({{first->first.layer, first->first.tensor}}))});
  }
}

std::vector<Moved> what_moved(const Evidence& evidence, const std::vector<Cause>& causes) {
  std::vector<Moved> moved;
  for (const Cause& cause : causes)
    moved.push_back({cause.iteration, fmt::format("{}: {}", cause.kind, named(cause.places))});
  if (!causes.empty()) add_alarms(evidence, moved);
  std::ranges::stable_sort(moved, {}, &Moved::iteration);
  return moved;
}

/// The last state that was saved before the iteration, by the options of the run.
std::string last_good_state(const Reading& reading, std::int64_t iteration) {
  if (reading.runs.empty()) return {};
  const auto& options = reading.runs.back().options;
  const auto every = options.find("save-every");
  const auto folder = options.find("save-dir");
  if (every == options.end() || folder == options.end() || folder->second.empty()) return {};
  std::int64_t steps = 0;
  std::from_chars(every->second.data(), every->second.data() + every->second.size(), steps);
  if (steps <= 0 || iteration < steps) return {};
  // A state of N steps was saved before iteration N.
  return fmt::format("{}/iter_{}", printable(folder->second, 200), iteration / steps * steps);
}

/// Nothing speaks about precision, but something is the matter: only those who looked may acquit.
void judge_trouble(Verdict& verdict, Cause trouble, const Coverage& coverage) {
  std::string missing;
  if (!coverage.invariants) missing = "InvariantGuard";
  if (!coverage.quantization) missing += missing.empty() ? "LogFp8TensorStats" : " and LogFp8TensorStats";
  if (!coverage.nonfinite) missing += missing.empty() ? "NonFiniteGuard" : " and NonFiniteGuard";
  if (trouble.outcome == Outcome::kNotPrecision && missing.empty()) {
    verdict.outcome = Outcome::kNotPrecision;
    verdict.sentence = fmt::format("not precision: {}", trouble.sentence);
  } else {
    trouble.outcome = Outcome::kCannotTell;
    verdict.outcome = Outcome::kCannotTell;
    verdict.sentence = fmt::format("cannot tell why: {}", trouble.sentence);
    if (!missing.empty()) {
      trouble.why = {fmt::format("{} was not on: precision can neither be blamed nor acquitted", missing)};
      trouble.actions = {"run again with `--preset diagnose` (or put these features into the config)"};
      trouble.expect = "a verdict that can tell";
    }
  }
  verdict.cause = std::move(trouble);
}

void judge_silence(Verdict& verdict, const Coverage& coverage) {
  if (coverage.invariants || coverage.nonfinite || coverage.quantization) {
    verdict.outcome = Outcome::kHealthy;
    verdict.sentence = "nothing found in what was measured";
    return;
  }
  verdict.outcome = Outcome::kCannotTell;
  verdict.sentence =
      "cannot tell: nothing that tells right from wrong was measured; run with `--preset diagnose`";
}

}  // namespace

std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kFound:
      return "found";
    case Outcome::kNotPrecision:
      return "not precision";
    case Outcome::kCannotTell:
      return "cannot tell";
    case Outcome::kNoData:
      return "no data";
    case Outcome::kHealthy:
      return "healthy";
  }
  return "no data";
}

std::string_view to_string(Confidence confidence) noexcept {
  switch (confidence) {
    case Confidence::kCertain:
      return "certain";
    case Confidence::kLikely:
      return "likely";
    case Confidence::kPossible:
      return "possible";
  }
  return "possible";
}

Verdict judge(const Evidence& evidence, Reading reading) {
  Verdict verdict;
  verdict.reading = std::move(reading);
  verdict.records = evidence.records();
  if (!verdict.reading.runs.empty()) verdict.other_paths = verdict.reading.runs.back().other_paths;
  std::vector<Cause> causes = precision_causes(evidence);
  for (Cause& cause : causes) name_ranks(cause, evidence, verdict.reading);
  std::vector<Cause> trouble = training_trouble(evidence);
  if (causes.empty() &&
      (verdict.reading.completed_steps == 0 || (evidence.records() == 0 && evidence.scalars().empty()))) {
    verdict.sentence = "no data: no completed step with anything recorded; this says nothing about the run";
    verdict.not_measured = {"everything"};
    return verdict;
  }
  std::vector<Cause> all = causes;
  append(all, trouble);
  Coverage coverage = coverage_of(evidence, found_by(evidence, all));
  verdict.clean = std::move(coverage.clean);
  verdict.not_measured = std::move(coverage.not_measured);
  verdict.moved = what_moved(evidence, all);
  if (!causes.empty()) {
    verdict.outcome = Outcome::kFound;
    verdict.sentence = causes.front().sentence;
    verdict.cause = std::move(causes.front());
    verdict.also.assign(std::make_move_iterator(causes.begin() + 1), std::make_move_iterator(causes.end()));
    append(verdict.also, std::move(trouble));
    std::ranges::stable_sort(verdict.also, {}, &Cause::iteration);
  } else if (!trouble.empty()) {
    judge_trouble(verdict, std::move(trouble.front()), coverage);
  } else {
    judge_silence(verdict, coverage);
  }
  if (verdict.cause) verdict.last_good_state = last_good_state(verdict.reading, verdict.cause->iteration);
  return verdict;
}

Verdict judge(const std::filesystem::path& log_dir) {
  Evidence evidence;
  Reading reading = read_records(log_dir, evidence);
  return judge(evidence, std::move(reading));
}

}  // namespace amaxscope::report

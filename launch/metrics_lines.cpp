#include "launch/metrics_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "launch/json_fields.hpp"
#include "launch/metrics_schema.hpp"
#include "report/line_reader.hpp"
#include "report/words.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope::launch {

namespace {

using nlohmann::json;

constexpr std::uint64_t kProblemsOfAFile = 20;

}  // namespace

void MetricsLines::problem_at(std::uint64_t line, std::string_view what) {
  if (++problems_ > kProblemsOfAFile) return;
  check_.problems.push_back(fmt::format("{}:{}: {}", name_, line, what));
}

const CheckedRun* MetricsLines::current() const {
  const auto found = std::ranges::find(check_.runs, run_id_, &CheckedRun::run_id);
  return found == check_.runs.end() ? nullptr : &*found;
}

void MetricsLines::read(const std::filesystem::path& path) {
  report::LineReader lines(path);
  try {
    if (!lines.open()) {
      check_.problems.push_back(fmt::format("{}: cannot be read", name_));
      return;
    }
    bool whole = true;
    while (const std::optional<std::string> text = lines.next(whole)) {
      ++line_;
      line(*text, whole);
    }
  } catch (const Error& error) {
    check_.problems.push_back(fmt::format("{}: {}", name_, error.what()));
    return;
  }
  if (lines.has_rest()) {
    ++line_;
    line({}, /*whole=*/false);
  }
  if (lines.gave_up()) {
    problem(fmt::format("a line of more than {} MiB; the file is read no further",
                        report::LineReader::kMostWithoutEnd >> 20U));
  }
  if (line_ == 0) {
    line_ = 1;
    problem("the file is empty: nothing was recorded");
    return;
  }
  leave_run(/*at_end_of_file=*/true);
  if (problems_ > kProblemsOfAFile) {
    check_.problems.push_back(fmt::format("{}: and {} more", name_, problems_ - kProblemsOfAFile));
  }
}

void MetricsLines::line(const std::string& text, bool whole) {
  json object;
  if (whole && json_excess(text).empty()) object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    if (broken_line_ == 0) broken_line_ = line_;
    return;
  }
  if (object.contains("schema_version")) return opening(object);
  if (broken_line_ != 0) {  // no later run went on after it
    problem_at(broken_line_, "is no JSON object: the line was cut off or overwritten");
    broken_line_ = 0;
  }
  if (run_id_.empty() && line_ == 1) problem("the line that says of which run this is is missing");
  const std::optional<std::int64_t> iteration = integer_field(object, "iteration");
  if (!iteration) return problem("has no iteration");
  if (object.contains("end_of_step")) return marker(object, *iteration);
  if (object.contains("end_of_run")) return end_of_run(*iteration);
  content(object, *iteration);
}

void MetricsLines::opening(const json& object) {
  if (line_ != 1) leave_run(/*at_end_of_file=*/false);
  run_id_ = text_field(object, "run_id").value_or("");
  opened_.insert(run_id_);
  if (integer_field(object, "schema_version") != RunDescription::kSchemaVersion) {
    problem(fmt::format("schema version {}, this program reads {}",
                        report::printable(object["schema_version"].dump(), 60),
                        RunDescription::kSchemaVersion));
  }
  if (current() == nullptr)
    problem(fmt::format("run \"{}\" is not in run.json", report::printable(run_id_, 60)));
  const std::optional<std::int64_t> rank = integer_field(object, "rank");
  if (!rank || !name_.ends_with(fmt::format("/rank_{}.jsonl", *rank))) {
    problem("the rank is not the one in the name of the file");
  }
}

void MetricsLines::content(const json& object, std::int64_t iteration) {
  if (ended_.contains(run_id_)) problem(fmt::format("a line of run {} after its end", run_id_));
  if (pending_++ == 0) pending_line_ = line_;
  const CheckedRun* run = current();
  if (const std::string wrong = shape_problem(object, run != nullptr ? run->world_size : 0); !wrong.empty()) {
    problem(wrong);
    if (object.contains("stats")) return;
  }
  if (object.contains("finding")) {  // of what came before the step, too
    ++pending_findings_;
    ++check_.findings;
    return;
  }
  if (!pending_iteration_) pending_iteration_ = iteration;
  if (iteration != *pending_iteration_) {
    problem(fmt::format("iteration {} within the step of iteration {}", iteration, *pending_iteration_));
    pending_iteration_ = iteration;
  } else if (!steps_.empty() && iteration <= *steps_.rbegin()) {
    problem(fmt::format("iteration {} after iteration {} was completed", iteration, *steps_.rbegin()));
  }
  if (run != nullptr && iteration < run->first_iteration) {
    problem(fmt::format("iteration {}, but run.json says that the run began at {}", iteration,
                        run->first_iteration));
  }
  if (!object.contains("stats")) return;
  ++check_.records;
  layers_.insert(object["layer"].get<std::string>());
  const Key key{object["layer"].get<std::string>(), object["tensor"].get<std::string>(),
                object["phase"].get<std::string>(), object.value("group", json()).dump()};
  if (!seen_.insert(key).second) {
    problem(fmt::format("a second record of {} {} in iteration {}", report::printable(std::get<0>(key), 120),
                        report::printable(std::get<1>(key), 40), iteration));
  }
}

void MetricsLines::end_of_run(std::int64_t iteration) {
  const CheckedRun* run = current();
  if (run != nullptr && run->closed && run->last_iteration != iteration) {
    problem(fmt::format("the run ends with iteration {}; run.json says {}", iteration,
                        run->last_iteration ? fmt::format("{}", *run->last_iteration) : "nothing"));
  }
  if (!ended_.insert(run_id_).second) problem(fmt::format("run {} ends a second time", run_id_));
}

void MetricsLines::marker(const json& object, std::int64_t iteration) {
  const std::optional<std::int64_t> count = integer_field(object, "records");
  if (!count || *count < 0 || static_cast<std::uint64_t>(*count) != pending_) {
    problem(fmt::format("the marker of iteration {} counts {} lines, {} are there", iteration,
                        report::printable(object.value("records", json()).dump(), 60), pending_));
  }
  if (pending_iteration_ && iteration != *pending_iteration_) {
    problem(fmt::format("the marker is of iteration {}, the lines before it of iteration {}", iteration,
                        *pending_iteration_));
  }
  if (!steps_.empty() && iteration <= *steps_.rbegin()) {
    problem(fmt::format("iteration {} ends after iteration {} has ended", iteration, *steps_.rbegin()));
  }
  const CheckedRun* run = current();
  if (run != nullptr && run->last_iteration && iteration > *run->last_iteration) {
    problem(fmt::format("iteration {}, but run.json says that the run was closed at {}", iteration,
                        *run->last_iteration));
  }
  steps_.insert(iteration);
  pending_ = pending_findings_ = 0;
  pending_iteration_.reset();
  seen_.clear();
}

void MetricsLines::leave_run(bool at_end_of_file) {
  // Findings of the moment at which the run was closed have no step.
  const bool open_step = pending_ > pending_findings_;
  const CheckedRun* run = current();
  const bool crashed = run != nullptr && !run->closed;
  if (!at_end_of_file && crashed && (broken_line_ != 0 || open_step)) {
    check_.notes.push_back(
        fmt::format("{}:{}: run {} ended within a step; that step is not complete, and a later run went on",
                    name_, broken_line_ != 0 ? broken_line_ : pending_line_, run_id_));
  } else {
    if (broken_line_ != 0) problem_at(broken_line_, "the line is cut off or no JSON object");
    if (open_step) {
      problem_at(pending_line_,
                 fmt::format("{} lines of iteration {} are not followed by its end-of-step marker",
                             pending_ - pending_findings_, pending_iteration_.value_or(-1)));
    }
  }
  if (run != nullptr && run->closed && !ended_.contains(run_id_) && broken_line_ == 0 && !open_step) {
    problem(fmt::format(
        "run {} was closed, but its lines end here without the one that ends a run: the file was cut off, or "
        "this rank could not write to the end",
        run_id_));
  }
  broken_line_ = 0;
  pending_ = pending_findings_ = 0;
  pending_iteration_.reset();
  seen_.clear();
}

}  // namespace amaxscope::launch

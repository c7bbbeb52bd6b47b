// Trains small models with a planted fault each, and some with none, all under the preset `diagnose`, and
// scores the verdicts: kind, layer, tensor, ranks, first iteration. Prints one table. Exit 1 when a clean run
// is not called healthy or a fault's kind is missed. usage: build/release/bench/diagnosis [--steps N] [--only
// ID ...] [--keep DIR]
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "bench/diagnosis/cases.hpp"
#include "core/error.hpp"
#include "features/presets.hpp"
#include "launch/child_process.hpp"
#include "report/verdict.hpp"

namespace amaxscope::diagnosis {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::int64_t steps = 240;
  std::int64_t seed = 1;
  std::vector<std::string> only;
  std::string keep;
};

/// A text for the trainer that is the same on every machine.
void write_text(const fs::path& path) {
  std::ofstream file(path, std::ios::binary);
  std::uint32_t state = 1;
  const char* const words[] = {"scale", "the",     "amax",      "of",  "a",      "tensor",  "is",
                               "its",   "largest", "magnitude", "and", "every",  "rank",    "has",
                               "to",    "agree",   "on",        "it",  "before", "the cast"};
  for (int i = 0; i < 40000; ++i) {
    state = state * 1664525U + 1013904223U;
    file << words[(state >> 16) % std::size(words)] << (i % 11 == 10 ? ".\n" : " ");
  }
}

struct Scored {
  report::Verdict verdict;
  bool kind = false;
  bool layer = false;
  bool tensor = false;
  bool ranks = false;
  bool iteration = false;
};

Scored scored(const Case& wanted, report::Verdict verdict) {
  Scored score;
  score.kind = verdict.outcome == wanted.outcome;
  if (!wanted.kind.empty()) {
    score.kind = score.kind && verdict.cause && verdict.cause->kind == wanted.kind;
    if (verdict.cause) {
      const report::Cause& cause = *verdict.cause;
      const auto matches = [&](const report::Place& place) { return place.layer == wanted.layer; };
      const auto place = std::ranges::find_if(cause.places, [&](const report::Place& each) {
        return matches(each) && each.tensor == wanted.tensor;
      });
      const bool there = place != cause.places.end() && (wanted.several || cause.places.size() == 1);
      score.layer = there || std::ranges::any_of(cause.places, matches);
      score.tensor = there;
      score.ranks = cause.ranks == wanted.at_ranks;
      score.iteration = std::abs(cause.iteration - wanted.iteration) <= wanted.within;
    }
  } else {
    score.layer = score.tensor = score.ranks = score.iteration = score.kind;
  }
  score.verdict = std::move(verdict);
  return score;
}

/// What the trainer prints when a fault first made a difference, of all ranks together.
std::int64_t first_effect(const fs::path& output) {
  std::ifstream file(output, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  constexpr std::string_view kSaid = "first made a difference at iteration ";
  std::optional<std::int64_t> first;
  for (std::size_t at = text.find(kSaid); at != std::string::npos; at = text.find(kSaid, at + 1)) {
    std::int64_t iteration = 0;
    const char* const begin = text.data() + at + kSaid.size();
    if (std::from_chars(begin, text.data() + text.size(), iteration).ec != std::errc()) continue;
    first = std::min(first.value_or(iteration), iteration);
  }
  AMAXSCOPE_CHECK(first.has_value(), ErrorCode::kIo, "{}: does not say when the fault made a difference",
                  output.string());
  return *first;
}

Scored tried(const Case& wanted, const Options& options, const fs::path& folder) {
  std::string name = wanted.id;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  const fs::path logs = folder / name;
  const fs::path config = folder / (name + ".yaml");
  std::ofstream(config, std::ios::binary) << find_preset("diagnose")->yaml << wanted.extra_yaml;
  std::vector<std::string> command = {AMAXSCOPE_SOURCE_DIR "/launch/mpirun_local",
                                      "-n",
                                      std::to_string(wanted.ranks),
                                      AMAXSCOPE_PROGRAM,
                                      "train",
                                      "--data",
                                      (folder / "text").string(),
                                      "--tp",
                                      "2",
                                      "--sequence-parallel",
                                      "--steps",
                                      std::to_string(options.steps),
                                      "--seed",
                                      std::to_string(options.seed),
                                      "--layers",
                                      "2",
                                      "--hidden",
                                      "64",
                                      "--heads",
                                      "4",
                                      "--seq",
                                      "32",
                                      "--batch",
                                      "4",
                                      "--config",
                                      config.string(),
                                      "--log-dir",
                                      logs.string()};
  // CLI11 takes the last mention; sequence parallelism wants more than one tensor-parallel rank.
  const auto tp = std::ranges::find(wanted.options, "--tp");
  if (tp != wanted.options.end() && *(tp + 1) == "1") std::erase(command, "--sequence-parallel");
  command.insert(command.end(), wanted.options.begin(), wanted.options.end());
  const int status = launch::run_to_file(command, folder / (name + ".out"));
  AMAXSCOPE_CHECK(status == 0, ErrorCode::kIo, "{}: the training ended with status {}; see {}", wanted.id,
                  status, (folder / (name + ".out")).string());
  Case right = wanted;
  if (wanted.when_it_took_effect) right.iteration = first_effect(folder / (name + ".out"));
  return scored(right, report::judge(logs));
}

std::string mark(bool right) { return right ? "yes" : "NO"; }

fs::path temporary_folder() {
  std::string pattern = (fs::temp_directory_path() / "amaxscope_diagnosis_XXXXXX").string();
  AMAXSCOPE_CHECK(mkdtemp(pattern.data()) != nullptr, ErrorCode::kIo, "{}: cannot be made", pattern);
  return pattern;
}

int bench(const Options& options) {
  const fs::path folder = options.keep.empty() ? temporary_folder() : fs::path(options.keep);
  fs::create_directories(folder);
  write_text(folder / "text");
  if (setenv("OPENBLAS_NUM_THREADS", "1", 0) != 0) return 1;
  fmt::print("{:<30} {:<5} {:<5} {:<6} {:<5} {:<9} verdict\n", "case", "kind", "layer", "tensor", "ranks",
             "iteration");
  int faults = 0;
  int right = 0;
  int clean = 0;
  int alarms = 0;
  int missed = 0;
  for (const Case& each : cases()) {
    if (!options.only.empty() && std::ranges::find(options.only, each.id) == options.only.end()) continue;
    const Scored score = tried(each, options, folder);
    const bool is_clean = each.outcome == report::Outcome::kHealthy;
    (is_clean ? clean : faults) += 1;
    if (!score.kind) ++(is_clean ? alarms : missed);
    if (!is_clean && score.kind && score.layer && score.tensor && score.ranks && score.iteration) ++right;
    const std::string when =
        score.verdict.cause ? fmt::format("{} ({})", mark(score.iteration), score.verdict.cause->iteration)
                            : mark(score.iteration);
    fmt::print(
        "{:<30} {:<5} {:<5} {:<6} {:<5} {:<9} {}: {}\n", each.id, mark(score.kind), mark(score.layer),
        mark(score.tensor), mark(score.ranks), when,
        score.verdict.cause ? score.verdict.cause->kind : std::string(to_string(score.verdict.outcome)),
        score.verdict.sentence);
    std::fflush(stdout);
  }
  fmt::print("{} of {} faults right in everything, {} kinds missed; {} false alarms in {} clean runs\n",
             right, faults, missed, alarms, clean);
  if (options.keep.empty()) fs::remove_all(folder);
  return missed + alarms == 0 ? 0 : 1;
}

}  // namespace
}  // namespace amaxscope::diagnosis

int main(int argc, char** argv) {
  using namespace amaxscope::diagnosis;
  CLI::App app("runs planted faults and clean runs under one preset and scores the verdicts");
  Options options;
  app.add_option("--steps", options.steps, "of each training (default 240)");
  app.add_option("--seed", options.seed, "of weights and batches (default 1)");
  app.add_option("--only", options.only, "ids of cases, as in the table (default: all)");
  app.add_option("--keep", options.keep, "keep logs and outputs in this folder");
  CLI11_PARSE(app, argc, argv);
  try {
    return bench(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "diagnosis: {}\n", error.what());
    return 2;
  }
}

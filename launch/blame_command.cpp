// `amaxscope blame`: which layers and GEMMs must be in high precision for a training to come out well, by
// running its command again and again.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "launch/child_process.hpp"
#include "launch/commands.hpp"
#include "launch/terminal.hpp"
#include "report/blame.hpp"
#include "report/json_values.hpp"
#include "report/records.hpp"
#include "runtime/config/config.hpp"
#include "runtime/storage/file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope::launch {

namespace {

struct CommandOptions {
  std::vector<std::string> command;
  std::string work_dir = "amaxscope_blame";
  std::string score = "loss";
  std::string order;
  std::int64_t last = 10;
  int seeds = 2;
  int first_seed = 1;
  int budget = 30;
  bool json = false;
};

/// Beside every config: a run without any feature writes no scalars.
constexpr std::string_view kScalars = R"(blame_scalars:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [weight], stats: [cur_amax], freq: 1000000000}
)";

/// Of the first run: how far each GEMM is from high precision.
constexpr std::string_view kErrors = R"(blame_errors:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    CompareGemm: {enabled: True, gemms: [fprop, dgrad, wgrad], freq: 10}
)";

/// Of runs.json and of --order: a name and some numbers for each layer or run.
constexpr std::size_t kMostStateBytes = 64U << 20;

/// Discarded when it is no JSON, or more of it than is taken.
nlohmann::json parsed(const std::string& text) {
  if (!json_excess(text).empty()) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool has_list(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_array();
}

/// What is asked of the records of one run.
class Outcome final : public report::RecordVisitor {
 public:
  Outcome(std::string score, std::int64_t last) : score_(std::move(score)), last_(last) {}

  void record(const report::RecordLine& line) override {
    Errors& errors = layers_[line.layer];
    const auto error = line.stats.find("relative_error");
    if (error == line.stats.end()) return;
    errors.sum += error->second;
    ++errors.count;
  }
  void scalars(std::int64_t, const std::map<std::string, double>& values) override {
    const auto found = values.find(score_);
    if (found == values.end()) return;
    values_.push_back(found->second);
    if (static_cast<std::int64_t>(values_.size()) > last_) values_.pop_front();
  }
  void finding(const report::FindingLine&) override {}

  /// The mean of the last ones. Not a number without any.
  [[nodiscard]] double score() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return values_.empty() ? std::numeric_limits<double>::quiet_NaN()
                           : sum / static_cast<double>(values_.size());
  }
  [[nodiscard]] bool has_score() const { return !values_.empty(); }
  /// The layer with the largest mean error first.
  [[nodiscard]] std::vector<std::string> layers() const {
    std::vector<std::pair<double, std::string>> ranked;
    for (const auto& [layer, errors] : layers_) {
      if (errors.count > 0) ranked.emplace_back(-errors.sum / errors.count, layer);
    }
    std::ranges::sort(ranked);
    std::vector<std::string> names;
    for (const auto& [error, layer] : ranked) names.push_back(layer);
    return names;
  }

 private:
  struct Errors {
    double sum = 0;
    int count = 0;
  };
  std::string score_;
  std::int64_t last_;
  std::deque<double> values_;
  std::map<std::string, Errors> layers_;
};

class Runs {
 public:
  explicit Runs(const CommandOptions& options) : options_(options), directory_(options.work_dir) {
    std::error_code failure;
    std::filesystem::create_directories(directory_, failure);
    AMAXSCOPE_CHECK(!failure, ErrorCode::kIo, "{}: cannot be made: {}", directory_.string(),
                    failure.message());
    take_up();
  }

  double score(const std::string& yaml, int seed) {
    const std::string key = text_digest(fmt::format("{}\n{}", seed, yaml));
    const auto known = scores_.find(key);
    if (known != scores_.end()) return known->second;
    const bool first = layers_.empty();
    const std::filesystem::path run = new_directory();
    write_file(run / "config.yaml", yaml + std::string(kScalars) + std::string(first ? kErrors : ""));
    const auto start = std::chrono::steady_clock::now();
    const int status = run_to_file(words(run, seed), run / "output.txt");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    AMAXSCOPE_CHECK(status == 0, ErrorCode::kInput, "the run in {} ended with status {}; its output: {}",
                    run.string(), status, (run / "output.txt").string());
    Outcome outcome(options_.score, options_.last);
    static_cast<void>(report::read_records(run / "logs", outcome));
    AMAXSCOPE_CHECK(
        outcome.has_score(), ErrorCode::kInput,
        "the run in {} left no scalar \"{}\" in {}; does the command use {{config}} and {{log_dir}}?",
        run.string(), options_.score, (run / "logs").string());
    if (first) layers_ = outcome.layers();
    scores_.emplace(key, outcome.score());
    save();
    std::fputs(fmt::format("{}: {} {:.6g}, {:.0f} s\n", run.filename().string(), options_.score,
                           outcome.score(), seconds)
                   .c_str(),
               stderr);
    return outcome.score();
  }

  /// Known after the first run.
  [[nodiscard]] const std::vector<std::string>& layers() const noexcept { return layers_; }

 private:
  [[nodiscard]] std::filesystem::path state() const { return directory_ / "runs.json"; }

  /// The scores of a search that was ended before.
  void take_up() {
    std::error_code unknown;
    if (!std::filesystem::exists(state(), unknown)) return;
    const nlohmann::json json = parsed(read_bounded(state(), kMostStateBytes));
    const bool ours = report::integer_of(json, "version") == 1 && json.contains("asked") &&
                      has_list(json, "layers") && json.contains("scores") && json.at("scores").is_object() &&
                      std::ranges::all_of(json.at("scores"), [](const nlohmann::json& score) {
                        return score.is_number() || score.is_null();
                      });
    AMAXSCOPE_CHECK(ours, ErrorCode::kInput, "{}: is not what blame writes; give another --work-dir",
                    state().string());
    AMAXSCOPE_CHECK(
        json.at("asked") == asked(), ErrorCode::kUsage,
        "{}: is of another command or --score; give another --work-dir, or the same command to go on",
        state().string());
    layers_ = report::texts_of(json, "layers");
    for (const auto& [key, value] : json.at("scores").items()) {
      scores_.emplace(key,
                      value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
    std::fputs(fmt::format("going on with the {} runs in {}\n", scores_.size(), directory_.string()).c_str(),
               stderr);
  }

  void save() const {
    nlohmann::ordered_json json = {{"version", 1}, {"asked", asked()}, {"layers", layers_}};
    json["scores"] = scores_;  // what is not finite becomes null
    write_file(state(), json.dump(1) + "\n");
  }

  [[nodiscard]] std::vector<std::string> asked() const {
    std::vector<std::string> words = options_.command;
    words.push_back(
        fmt::format("score {} last {} first seed {}", options_.score, options_.last, options_.first_seed));
    return words;
  }

  [[nodiscard]] std::filesystem::path new_directory() const {
    for (std::size_t number = scores_.size();; ++number) {
      const std::filesystem::path run = directory_ / fmt::format("run_{:03}", number);
      std::error_code failure;
      if (std::filesystem::create_directory(run, failure)) return run;
      AMAXSCOPE_CHECK(!failure, ErrorCode::kIo, "{}: cannot be made: {}", run.string(), failure.message());
    }
  }

  [[nodiscard]] std::vector<std::string> words(const std::filesystem::path& run, int seed) const {
    const std::map<std::string, std::string> values = {
        {"{config}", std::filesystem::absolute(run / "config.yaml").string()},
        {"{log_dir}", std::filesystem::absolute(run / "logs").string()},
        {"{seed}", fmt::format("{}", options_.first_seed + seed)}};
    std::vector<std::string> result;
    for (std::string word : options_.command) {
      for (const auto& [name, value] : values) {
        for (std::size_t at = 0; (at = word.find(name, at)) != std::string::npos; at += value.size()) {
          word.replace(at, name.size(), value);
        }
      }
      result.push_back(std::move(word));
    }
    return result;
  }

  static void write_file(const std::filesystem::path& path, const std::string& text) {
    OutputFile file(path);
    file.write(text);
    file.commit();
  }

  const CommandOptions& options_;
  std::filesystem::path directory_;
  std::vector<std::string> layers_;
  std::map<std::string, double> scores_;  ///< by config and seed
};

/// Layers as `sense --json` ranks them.
std::vector<std::string> order_of(const std::string& path) {
  std::ifstream file(path);  // it may be a pipe
  AMAXSCOPE_CHECK(file.good(), ErrorCode::kIo, "--order {}: cannot be read", path);
  std::string text(kMostStateBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  AMAXSCOPE_CHECK(text.size() <= kMostStateBytes, ErrorCode::kInput, "--order {}: has more than {} bytes",
                  path, kMostStateBytes);
  const nlohmann::json json = parsed(text);
  std::vector<std::string> layers;
  if (has_list(json, "ranked")) {
    for (const nlohmann::json& row : json.at("ranked")) {
      if (row.is_object() && report::text_of(row, "kind") == "layer")
        layers.push_back(report::text_of(row, "what"));
    }
  }
  AMAXSCOPE_CHECK(!layers.empty(), ErrorCode::kInput,
                  "--order {}: has no layers in it; it is what `amaxscope sense --json` prints", path);
  return layers;
}

void check(const CommandOptions& options) {
  for (const std::string name : {"{config}", "{log_dir}", "{seed}"}) {
    const bool used = std::ranges::any_of(
        options.command, [&](const std::string& word) { return word.find(name) != std::string::npos; });
    AMAXSCOPE_CHECK(
        used, ErrorCode::kUsage,
        "the command does not mention {}; it must say where its debug config, its logs and its seed "
        "go, as in: -- mpirun -n 2 amaxscope train --tp 2 --config {{config}} --log-dir {{log_dir}} "
        "--seed {{seed}}",
        name);
  }
  AMAXSCOPE_CHECK(options.last >= 1, ErrorCode::kUsage, "--last {}: must be at least 1", options.last);
}

ExitStatus run_blame(const CommandOptions& options) {
  check(options);
  Runs runs(options);
  std::vector<std::string> layers;
  if (!options.order.empty()) layers = order_of(options.order);
  static_cast<void>(runs.score("", 0));  // says which layers there are
  if (layers.empty()) layers = runs.layers();
  const report::Blame result =
      report::blame(layers, [&](const std::string& yaml, int seed) { return runs.score(yaml, seed); },
                    {.seeds = options.seeds, .budget = options.budget});
  say(stdout, options.json ? report::as_json(result) + "\n" : report::as_text(result));
  return result.outcome == report::BlameOutcome::kNoDamage ? kDone : kAnswerIsNo;
}

}  // namespace

Command add_blame(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "blame",
      "runs a training again and again: which layers and GEMMs must be in high precision for it to come "
      "out well");
  auto options = std::make_shared<CommandOptions>();
  subcommand
      ->add_option("COMMAND", options->command,
                   "after --: the training, with {config}, {log_dir} and {seed} where these go")
      ->required()
      ->type_name("");
  const auto add = [&](const char* name, auto& value, const char* type, const char* doc) {
    subcommand->add_option(name, value, doc)->type_name(type);
  };
  add("--score", options->score, "NAME", "the scalar that is to be small (default loss)");
  add("--last", options->last, "N", "the mean of its last N values is the score of a run (default 10)");
  add("--seeds", options->seeds, "N", "seeds of the runs that tell damage from noise (default 2)");
  add("--first-seed", options->first_seed, "N", "the first of them (default 1)");
  add("--budget", options->budget, "N", "runs at most (default 30)");
  add("--order", options->order, "FILE", "what `sense --json` printed: its layers, the most sensitive first");
  add("--work-dir", options->work_dir, "DIR",
      "where runs and their scores are kept; the same again goes on there (default amaxscope_blame)");
  subcommand->add_flag("--json", options->json, "one JSON object on standard output");
  subcommand->footer(
      "Without --order the layers come in the order of CompareGemm's errors in the first run.\n"
      "Exit 0: high precision is not better by more than seeds differ. 1: it is, and this is to blame. 2: a "
      "run "
      "failed, or wrong use.");
  return {.app = subcommand, .run_alone = [options] { return run_blame(*options); }};
}

}  // namespace amaxscope::launch

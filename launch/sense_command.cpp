// `amaxscope sense`: which GEMM, operand or layer of a step suffers from its precision.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "launch/commands.hpp"
#include "launch/job.hpp"
#include "launch/ticker.hpp"
#include "launch/train_setup.hpp"
#include "report/sensitivity.hpp"

namespace amaxscope::launch {

namespace {

struct SenseOptions {
  TrainOptions train;
  std::int64_t at = 20;
  bool each_gemm = false;
};

/// A folder of this process, gone with it.
class StateFolder {
 public:
  StateFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "amaxscope_sense_XXXXXX").string();
    AMAXSCOPE_CHECK(mkdtemp(pattern.data()) != nullptr, ErrorCode::kIo, "{}: cannot be made", pattern);
    path_ = pattern;
  }
  ~StateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

void check_options(const SenseOptions& options, int ranks) {
  validate(options.train, ranks);
  const TrainOptions& train = options.train;
  AMAXSCOPE_CHECK(train.config.empty() && train.preset.empty() && train.plugins.empty(), ErrorCode::kUsage,
                  "sense makes the debug configs itself; leave --config, --preset and --plugin out");
  AMAXSCOPE_CHECK(train.device == "cpu", ErrorCode::kUsage,
                  "--device {}: sense computes on the CPU; leave --device out", train.device);
  AMAXSCOPE_CHECK(train.recipe != "none", ErrorCode::kUsage,
                  "--recipe none: nothing is quantized, so there is nothing to ask");
  AMAXSCOPE_CHECK(!train.fp8_weights, ErrorCode::kUsage,
                  "--fp8-weights: a weight that exists in FP8 only cannot be had in high precision");
  AMAXSCOPE_CHECK(options.at >= 0 && options.at < train.steps, ErrorCode::kUsage,
                  "--at {}: the training has iterations 0 to {} (--steps {})", options.at, train.steps - 1,
                  train.steps);
}

class Sense {
 public:
  Sense(Job& job, const SenseOptions& options) : job_(job), options_(options) {}

  ExitStatus run() {
    prepare();
    train_to_the_step();
    std::optional<report::Sensitivity> result;
    std::vector<report::Trial> trials;
    job_.agree([&] { trials = report::sense_trials(layers(), options_.each_gemm); });
    {
      std::optional<Ticker> ticker;
      if (job_.is_leader()) ticker.emplace(stderr, "steps", 2 + 2 * static_cast<std::int64_t>(trials.size()));
      result = report::sense(
          trials, [this](const std::string& yaml) { return step_under(yaml); }, sum_over_ranks(),
          [&](std::size_t, std::size_t) {
            if (ticker) ticker->advance();
          });
    }
    if (job_.is_leader()) print(*result);
    return kDone;
  }

 private:
  void prepare() {
    job_.agree([&] { environment_ = Environment::from_process(); });
    job_.agree([&] { check_options(options_, job_.world().size()); });
    agree_on_options(job_, options_.train);
    job_.agree_on("--at", fmt::format("{}", options_.at));
    job_.agree_on("--each-gemm", options_.each_gemm ? "true" : "false");
    job_.agree([&] {
      AMAXSCOPE_CHECK(environment_.enabled, ErrorCode::kUsage,
                      "the debug runtime is switched off by the environment; sense works through it");
      trainer_options_ = trainer_options(options_.train);
      data_.emplace(read_text(options_.train));
    });
    job_.agree_on("the training text's size", fmt::format("{} bytes", data_->size()));
    share_cores(job_, environment_);
    const TrainOptions& train = options_.train;
    job_.agree([&] { groups_.emplace(job_.world(), ParallelSizes{.tp = train.tp, .pp = train.pp}); });
    trainer_groups_ = {&job_.world(), &groups_->tp(), &groups_->dp(), &groups_->tp_dp_cp(), &groups_->pp()};
    const int dp_rank = groups_->grid().coordinate(job_.world().rank(), "dp");
    batches_ = megatron::text_batches(*data_, trainer_options_, train.batch, dp_rank);
    evaluation_ = megatron::evaluation_batches(*data_, trainer_options_, train.batch, dp_rank);
  }

  /// The state that every trial begins with.
  void train_to_the_step() {
    job_.agree([&] {
      states_.emplace();
      const std::filesystem::path saved =
          options_.train.resume.empty() ? "" : megatron::find_state(options_.train.resume);
      if (!saved.empty()) {
        trainer_options_.first_iteration =
            megatron::iteration_of_state(megatron::state_file(saved, job_.world().rank()));
        AMAXSCOPE_CHECK(trainer_options_.first_iteration <= options_.at, ErrorCode::kUsage,
                        "--resume {}: {} steps are done there, and --at is {}", saved.string(),
                        trainer_options_.first_iteration, options_.at);
      }
      megatron::Trainer trainer(trainer_options_, trainer_groups_, nullptr);
      trainer.set_evaluation(evaluation_, 1);
      if (!saved.empty()) trainer.load_state(saved);
      std::optional<Ticker> ticker;
      const std::int64_t steps = options_.at - trainer.iteration();
      if (job_.is_leader()) ticker.emplace(stderr, "steps before the one to look at", steps);
      trainer.run(steps, batches_, [&](const megatron::StepReport&) {
        if (ticker) ticker->advance();
      });
      trainer.save_state(states_->path());
    });
    trainer_options_.first_iteration = options_.at;
  }

  /// Of all pipeline stages, in model order.
  [[nodiscard]] std::vector<report::SensedLayer> layers() const {
    std::vector<report::SensedLayer> layers;
    for (const std::string& name : megatron::Gpt::layer_names(trainer_options_.model)) {
      // The output layer stays in high precision under every recipe.
      layers.push_back({name, name == "output_layer" ? RecipeKind::kNone : trainer_options_.recipe});
    }
    return layers;
  }

  report::StepResult step_under(const std::string& yaml) {
    report::StepResult result;
    job_.agree([&] {
      trainer_.reset();
      SessionOptions session_options;
      if (!yaml.empty()) session_options.config_text = yaml;
      session_options.first_iteration = options_.at;
      session_options.failure_policy = FailurePolicy::kAbort;
      session_options.deadline = std::chrono::seconds(options_.train.deadline);
      session_options.environment = environment_;
      session_.emplace(registry_, SessionGroups::from(*groups_), std::move(session_options));
      trainer_.emplace(trainer_options_, trainer_groups_, &*session_);
      trainer_->set_evaluation(evaluation_, 1);
      trainer_->load_state(states_->path(), /*with_session=*/false);
      const std::vector<megatron::Parameter*>& parameters = trainer_->model().parameters();
      if (numbers_.empty()) number_parameters(parameters);
      std::vector<Tensor> before;
      for (const megatron::Parameter* parameter : parameters) before.push_back(parameter->master.clone());
      result.loss = trainer_->step(batches_).loss;
      session_->close();
      updates_.clear();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const megatron::Parameter& parameter = *parameters[i];
        if (parameter.copy_of_first_stage) continue;
        updates_.push_back(difference(parameter.master, before[i]));
        const std::size_t number = numbers_.at(parameter.name);
        result.gradient.push_back({parameter.gradient.view(), number, share_of(parameter)});
        result.update.push_back({updates_.back().view(), number, share_of(parameter)});
      }
      result.parameters = numbers_.size();
    });
    return result;
  }

  /// The same on all ranks, in the order in which ranks have them.
  void number_parameters(const std::vector<megatron::Parameter*>& parameters) {
    std::string own;
    for (const megatron::Parameter* parameter : parameters) {
      if (!parameter->copy_of_first_stage) own += parameter->name + "\n";
    }
    for (const std::string& names :
         all_gather_text(job_.world(), own, {.traffic = Traffic::kDebug, .what = "names of parameters"})) {
      std::istringstream lines(names);
      for (std::string name; std::getline(lines, name);) numbers_.emplace(name, numbers_.size());
    }
  }

  static Tensor difference(const Tensor& after, const Tensor& before) {
    Tensor update(DType::kF32, after.shape());
    const auto a = after.view().values<float>();
    const auto b = before.view().values<float>();
    const auto out = update.values<float>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = a[i] - b[i];
    return update;
  }

  [[nodiscard]] double share_of(const megatron::Parameter& parameter) {
    const int replicas =
        groups_->dp().size() * (parameter.layout == Layout::kReplicated ? groups_->tp().size() : 1);
    return 1.0 / replicas;
  }

  report::SumOverRanks sum_over_ranks() {
    if (job_.world().size() == 1) return {};
    return [this](std::span<double> values) {
      job_.agree([&] {
        job_.world().all_reduce(
            MutableTensorView(values.data(), DType::kF64, Shape{static_cast<std::int64_t>(values.size())}),
            ReduceOp::kSum, {.traffic = Traffic::kDebug, .what = "distances of steps"});
      });
    };
  }

  void print(const report::Sensitivity& result) const {
    const std::string text =
        options_.train.json
            ? report::as_json(result) + "\n"
            : fmt::format("sense: iteration {}, recipe {}, {} rank{}, tp {}, pp {}\n", options_.at,
                          options_.train.recipe, job_.world().size(), job_.world().size() == 1 ? "" : "s",
                          options_.train.tp, options_.train.pp) +
                  report::as_text(result);
    std::fputs(text.c_str(), stdout);
    AMAXSCOPE_CHECK(std::fflush(stdout) == 0, ErrorCode::kIo, "standard output cannot be written");
  }

  Job& job_;
  const SenseOptions& options_;
  Environment environment_;
  megatron::TrainerOptions trainer_options_;
  std::optional<megatron::TextData> data_;
  std::optional<StateFolder> states_;
  megatron::BatchSource batches_;
  megatron::BatchSource evaluation_;
  // In the order in which each needs the one before.
  FeatureRegistry registry_ = builtin_features();
  std::optional<ProcessGroups> groups_;
  megatron::TrainerGroups trainer_groups_;
  std::optional<DebugSession> session_;
  std::optional<megatron::Trainer> trainer_;
  std::map<std::string, std::size_t> numbers_;  ///< of parameters, by name
  std::vector<Tensor> updates_;                 ///< of the last step
};

}  // namespace

Command add_sense(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand("sense",
                                            "under mpirun: trains up to a step and runs it again with one "
                                            "thing in high precision: which GEMM, operand "
                                            "or layer suffers");
  auto options = std::make_shared<SenseOptions>();
  subcommand->add_option("--at", options->at, "the iteration whose step is looked at (default 20)")
      ->type_name("N");
  subcommand->add_flag("--each-gemm", options->each_gemm, "every GEMM of every layer by itself, too");
  add_train_options(*subcommand, options->train);
  subcommand->footer(
      "The other options are those of `train`, but for --config and --preset. With --resume the steps up to "
      "--at begin there.\n"
      "Exit 0 whatever it finds. docs/report.md says how to read it.");
  return {.app = subcommand, .run_in_job = [options](Job& job) { return Sense(job, *options).run(); }};
}

}  // namespace amaxscope::launch

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "collectives/flight_recorder.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "features/presets.hpp"
#include "launch/commands.hpp"
#include "launch/job.hpp"
#include "launch/job_watch.hpp"
#include "launch/log_directory.hpp"
#include "launch/plugins.hpp"
#include "launch/progress.hpp"
#include "launch/train_device.hpp"
#include "launch/train_options.hpp"
#include "launch/train_setup.hpp"
#include "launch/train_summary.hpp"
#include "megatron/trainer.hpp"
#include "report/verdict_text.hpp"
#include "runtime/sinks/tensorboard_sink.hpp"

namespace amaxscope::launch {

namespace {

SessionOptions session_options(const TrainOptions& options, const std::string& log_dir,
                               const Environment& environment, std::int64_t first_iteration,
                               std::shared_ptr<FlightRecorder> flight) {
  SessionOptions result;
  result.first_iteration = first_iteration;
  if (!options.preset.empty()) {
    result.config_text = std::string(find_preset(options.preset)->yaml);
    result.log_dir = log_dir;
  } else if (!options.config.empty()) {
    result.config_path = options.config;
    result.log_dir = log_dir;
  }
  // A training that nobody can trust any more is not worth its cluster: the library's own default would go
  // on.
  result.failure_policy = FailurePolicy::kAbort;
  result.watch_config = options.watch_config;
  if (options.poll_every > 0) result.poll_every = options.poll_every;
  result.dump_on_signal = !options.no_signals && !result.log_dir.empty();
  result.deadline = std::chrono::seconds(options.deadline);
  result.run_options = described(options);
  result.environment = environment;
  result.flight = std::move(flight);
  return result;
}

/// Everything of one training, built stage by stage so that no rank goes on after another has refused.
class Training {
 public:
  Training(Job& job, const TrainOptions& options) : job_(job), options_(options) {}

  ExitStatus run() {
    prepare();
    build();
    train();
    summarize();
    // The policy is to abort: a run whose logs lack something has not done what it was asked to.
    job_.agree([&] {
      const std::optional<std::string>& failure = session_->write_failure();
      AMAXSCOPE_CHECK(!failure, ErrorCode::kIo, "the training is done, but its logs are not complete: {}",
                      *failure);
    });
    if (flight_ != nullptr) {
      flight_->set_where("finished");
      flight_->set_state(FlightState::kFinished);
    }
    return kDone;
  }

 private:
  /// Whether a debug config keeps logs of this run.
  [[nodiscard]] bool observes() const { return !options_.config.empty() || !options_.preset.empty(); }

  void open_flight() {
    if (!observes() || !environment_.enabled) return;
    const int rank = job_.world().rank();
    const int ranks = job_.world().size();
    had_log_dir_ = job_.leaders_text(std::filesystem::exists(log_dir_) ? "yes" : "no") == "yes";
    try {
      flight_ = FlightRecorder::in_directory(std::filesystem::path(log_dir_) / "flight", rank, ranks);
    } catch (const Error& error) {  // a disk without room for it is no reason not to train
      std::fputs(fmt::format("amaxscope: rank {}: no flight record: {}\n", rank, error.what()).c_str(),
                 stderr);
      flight_ = FlightRecorder::in_memory(rank, ranks, {});
    }
    flight_->set_where("starting");
    job_.record_into(flight_);
    if (!flight_->directory().empty()) watch_.emplace(flight_, std::chrono::seconds(options_.deadline));
  }

  /// A run that is refused, or that has nothing to observe, leaves nothing behind.
  void discard_flight() {
    if (flight_ == nullptr) return;
    const std::filesystem::path directory = flight_->directory();
    watch_.reset();
    job_.record_into(nullptr);
    std::error_code ignored;
    if (!directory.empty()) {
      std::filesystem::remove(FlightRecorder::file_of(directory, flight_->world_rank()), ignored);
    }
    flight_.reset();
    job_.agree([] {});  // every rank has removed its own
    if (!job_.is_leader() || directory.empty()) return;
    std::filesystem::remove(directory, ignored);
    if (!had_log_dir_) std::filesystem::remove(log_dir_, ignored);
  }

  void prepare() {
    job_.agree([&] { environment_ = Environment::from_process(); });
    job_.agree([&] { validate(options_, job_.world().size()); });
    agree_on_options(job_, options_);
    job_.agree([&] { load_plugins(options_.plugins, job_.is_leader(), registry_); });
    job_.agree([&] { trainer_options_ = trainer_options(options_); });
    job_.agree([&] { data_.emplace(read_text(options_)); });
    job_.agree_on("the training text's size", fmt::format("{} bytes", data_->size()));
    log_dir_ = job_.leaders_text(options_.log_dir.empty() ? default_log_directory() : options_.log_dir);
    job_.agree([&] {
      // A run that goes on may add to its logs.
      if (observes() && options_.resume.empty() && job_.is_leader()) require_fresh_log_directory(log_dir_);
    });
    open_flight();
    if (!options_.resume.empty()) find_saved_state();
    share_cores(job_, environment_);
    open_device();
  }

  void open_device() {
    try {
      device_.emplace(job_, options_);
    } catch (const JobFailed&) {
      discard_flight();
      throw;
    }
    trainer_options_.device = device_->stream();
    if (device_->is_cpu() || !job_.is_leader()) return;
    std::fputs(fmt::format("device: {}\n", device_->description()).c_str(), options_.json ? stderr : stdout);
    std::fflush(nullptr);
  }

  void find_saved_state() {
    job_.agree([&] {
      resumed_from_ = megatron::find_state(options_.resume);
      first_iteration_ =
          megatron::iteration_of_state(megatron::state_file(resumed_from_, job_.world().rank()));
    });
    job_.agree_on("the iteration of the saved state", fmt::format("{}", first_iteration_));
    job_.agree([&] {
      AMAXSCOPE_CHECK(first_iteration_ < options_.steps, ErrorCode::kUsage,
                      "--resume {}: {} steps are done, and --steps is {}", resumed_from_.string(),
                      first_iteration_, options_.steps);
    });
  }

  void build() {
    job_.agree([&] { groups_.emplace(job_.world(), ParallelSizes{.tp = options_.tp, .pp = options_.pp}); });
    job_.agree([&] { device_->connect(*groups_); });
    try {
      job_.agree([&] {
        SessionOptions session = session_options(options_, log_dir_, environment_, first_iteration_, flight_);
        if (!device_->is_cpu()) session.run_options["computes"] = device_->description();
        if (options_.tensorboard) {
          session.extra_sinks.push_back(make_tensorboard_sink(log_dir_, job_.world().rank()));
        }
        SessionGroups groups = SessionGroups::from(*groups_);
        groups.tp = &device_->tp(*groups_);
        session_.emplace(registry_, groups, std::move(session));
      });
    } catch (const JobFailed& failed) {
      if (failed.status == kBadInput) discard_flight();
      throw;
    }
    if (!session_->enabled()) discard_flight();
    job_.agree([&] {
      const megatron::TrainerGroups groups{&job_.world(), &device_->tp(*groups_), &groups_->dp(),
                                           &groups_->tp_dp_cp(), &groups_->pp()};
      trainer_.emplace(trainer_options_, groups, &*session_);
    });
    if (!options_.resume.empty()) job_.agree([&] { trainer_->load_state(resumed_from_); });
  }

  void train() {
    const int dp_rank = groups_->grid().coordinate(job_.world().rank(), "dp");
    const auto batches = megatron::text_batches(*data_, trainer_options_, options_.batch, dp_rank);
    trainer_->set_evaluation(megatron::evaluation_batches(*data_, trainer_options_, options_.batch, dp_rank),
                             1);
    Progress progress(options_.json ? stderr : stdout, options_.steps);
    const auto start = std::chrono::steady_clock::now();
    if (flight_ != nullptr) flight_->set_state(FlightState::kTraining);
    job_.agree([&] {
      trainer_->run(options_.steps - first_iteration_, batches, [&](const megatron::StepReport& report) {
        summary_.losses.push_back(report.loss);
        if (report.evaluation_loss)
          summary_.evaluations.emplace_back(report.iteration, *report.evaluation_loss);
        if (job_.is_leader()) progress.step_done(report.iteration, report.loss, report.gradient_norm);
        save_if_due();
      });
      session_->close();
    });
    summary_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    say_first_effects();
  }

  /// When what was planted on this rank began to matter, of the faults that can tell.
  void say_first_effects() const {
    if (trainer_->faults() == nullptr) return;
    const auto faults = trainer_->faults()->faults();
    const auto effects = trainer_->faults()->first_effects();
    for (std::size_t i = 0; i < faults.size(); ++i) {
      if (!effects[i]) continue;
      std::fputs(fmt::format("[rank {}] fault {} of {}: first made a difference at iteration {}\n",
                             job_.world().rank(), to_string(faults[i].kind), faults[i].layer, *effects[i])
                     .c_str(),
                 stderr);
    }
  }

  void save_if_due() {
    const std::int64_t done = trainer_->iteration();
    if (options_.save_every == 0 || done % options_.save_every != 0) return;
    trainer_->save_state(megatron::state_directory(options_.save_dir, done));
    if (job_.is_leader()) megatron::mark_newest_state(options_.save_dir, done);
  }

  void summarize() {
    const auto calls = [&](Traffic traffic) {
      const Communicator* const nccl = device_->nccl();
      return job_.world().counters().calls(traffic) + (nccl != nullptr ? nccl->counters().calls(traffic) : 0);
    };
    summary_.collectives = {calls(Traffic::kTrainer), calls(Traffic::kRecipe), calls(Traffic::kDebug)};
    summary_.weights_digest = job_.joint_digest(fmt::format("{:016x}", trainer_->digest()));
    summary_.world = job_.world().size();
    summary_.tp = options_.tp;
    summary_.pp = options_.pp;
    summary_.recipe = options_.recipe;
    if (std::filesystem::exists(std::filesystem::path(log_dir_) / "run.json")) summary_.log_dir = log_dir_;
    if (!job_.is_leader()) return;
    add_verdict();
    const std::string text = options_.json ? as_json(summary_) : as_text(summary_);
    std::fputs(text.c_str(), stdout);
    AMAXSCOPE_CHECK(std::fflush(stdout) == 0, ErrorCode::kIo, "standard output cannot be written");
  }

  /// From what all ranks have written; where their disks are not shared, from what can be seen here.
  void add_verdict() {
    if (summary_.log_dir.empty()) return;
    try {
      const report::Verdict verdict = report::judge(log_dir_);
      summary_.verdict_text = report::as_short_text(verdict, log_dir_);
      summary_.verdict_json = report::as_json(verdict);
    } catch (const std::exception& error) {  // the training is done; its report can be asked for again
      std::fputs(fmt::format("amaxscope: no verdict: {}\n", error.what()).c_str(), stderr);
    }
  }

  Job& job_;
  const TrainOptions& options_;
  Environment environment_;
  megatron::TrainerOptions trainer_options_;
  std::optional<megatron::TextData> data_;
  std::string log_dir_;
  std::filesystem::path resumed_from_;
  std::int64_t first_iteration_ = 0;
  std::shared_ptr<FlightRecorder> flight_;  ///< null without a debug config
  std::optional<JobWatch> watch_;           ///< the same
  bool had_log_dir_ = false;                ///< it was there before
  // In the order in which each needs the one before.
  FeatureRegistry registry_ = builtin_features();
  std::optional<ProcessGroups> groups_;
  std::optional<TrainDevice> device_;
  std::optional<DebugSession> session_;
  std::optional<megatron::Trainer> trainer_;
  TrainSummary summary_;
};

}  // namespace

Command add_train(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "train",
      "under mpirun: trains a small byte-level GPT, tensor and pipeline parallel, with a debug config");
  auto options = std::make_shared<TrainOptions>();
  add_train_options(*subcommand, *options);
  return {.app = subcommand, .run_in_job = [options](Job& job) { return Training(job, *options).run(); }};
}

}  // namespace amaxscope::launch

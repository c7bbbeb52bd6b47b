// A training of a few small layers under mpirun, in which one rank fails in one way at one place: what
// tests/fault/fault_suite_test.cpp starts. Without a fault it is a clean run of the same program.
#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "collectives/collective_guard.hpp"
#include "collectives/process_groups.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "launch/job.hpp"
#include "launch/job_watch.hpp"
#include "runtime/session.hpp"
#include "tests/fault/saboteur.hpp"

namespace amaxscope::testing {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kColumns = 16;

struct Options {
  Plan plan;
  std::int64_t steps = 6;
  std::int64_t deadline_ms = 1000;
  std::string config;
  std::string odd_config;  ///< what the rank of the plan reads instead
  std::string log_dir;
  std::string policy;
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app{"one planted failure in a small training"};
  app.add_option("--fault", options.plan.fault);
  app.add_option("--at", options.plan.place);
  app.add_option("--rank", options.plan.rank);
  app.add_option("--iteration", options.plan.iteration);
  app.add_option("--steps", options.steps);
  app.add_option("--deadline", options.deadline_ms);
  app.add_option("--config", options.config)->required();
  app.add_option("--odd-config", options.odd_config);
  app.add_option("--log-dir", options.log_dir);
  app.add_option("--policy", options.policy);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kUsage, error.what());
  }
  return options;
}

/// The same numbers on every run; other ones on every rank, layer and iteration.
Tensor made_up(int rank, int layer, std::int64_t iteration) {
  Tensor x(DType::kF32, Shape{kRows, kColumns});
  float value = static_cast<float>(1 + rank + 3 * layer + static_cast<int>(iteration));
  for (float& element : x.values<float>()) {
    element = value;
    value = -0.75F * value + 0.5F;
  }
  return x;
}

class Training {
 public:
  Training(launch::Job& job, Options options)
      : job_(job), options_(std::move(options)), saboteur_(options_.plan, job.world().rank()) {}

  void run() {
    job_.agree([&] { start(); });
    job_.agree([&] {
      for (std::int64_t iteration = 0; iteration < options_.steps; ++iteration) step(iteration);
    });
    job_.agree([&] {
      saboteur_.strike("close");
      if (!saboteur_.strikes("skip", "close")) session_->close();
    });
    std::printf("rank %d: loss %.9g, %s\n", job_.world().rank(), loss_,
                session_->detached() ? "detached" : "observed to the end");
    std::fflush(stdout);
  }

 private:
  void start() {
    saboteur_.set_iteration(0);
    if (!options_.log_dir.empty()) {
      flight_ = FlightRecorder::in_directory(std::filesystem::path(options_.log_dir) / "flight",
                                             job_.world().rank(), job_.world().size());
      job_.record_into(flight_);
      watch_.emplace(flight_, std::chrono::milliseconds(options_.deadline_ms));
    }
    saboteur_.strike("start");
    groups_.emplace(job_.world(), ParallelSizes{.tp = job_.world().size()});
    compared_ = job_.world().split(0, job_.world().rank(), {.what = "comparison"});
    guard_.emplace(*compared_,
                   CollectiveGuard::Options{.deadline = std::chrono::milliseconds(options_.deadline_ms)});
    registry_ = builtin_features();
    registry_.add(saboteur_.entry());
    SessionOptions options;
    options.config_path = saboteur_.strikes("config", "start") ? options_.odd_config : options_.config;
    options.log_dir = options_.log_dir;
    if (saboteur_.strikes("log_dir", "start")) options.log_dir = options_.config + "/below_a_file";
    options.deadline = std::chrono::milliseconds(options_.deadline_ms);
    options.flight = flight_;
    if (!options_.policy.empty()) {
      options.failure_policy = options_.policy == "abort" ? FailurePolicy::kAbort : FailurePolicy::kDetach;
    }
    session_.emplace(registry_, SessionGroups::from(*groups_), std::move(options));
    for (int layer = 0; layer < (saboteur_.strikes("model", "start") ? 4 : 3); ++layer) {
      LayerDescription description;
      description.name = "decoder.layers." + std::to_string(layer + 1) + ".mlp.linear_fc1";
      description.parallel = ParallelMode::kRow;
      description.tp_group = &groups_->tp();
      layers_.push_back(session_->layer(description));
    }
  }

  void step(std::int64_t iteration) {
    saboteur_.set_iteration(iteration);
    const bool other_order = saboteur_.strikes("order", "amax");
    for (int i = 0; i < 3; ++i) {
      const int layer = other_order ? 2 - i : i;
      if (layer == 1 && saboteur_.strikes("skip", "amax")) continue;
      feed(layer, iteration);
      if (layer == 1 && saboteur_.strikes("extra", "amax")) feed(layer, iteration);
    }
    train(iteration);
    compare(iteration);
    saboteur_.strike("step");
    if (saboteur_.strikes("skip", "step")) return;
    session_->step();
    if (saboteur_.strikes("extra", "step")) session_->step();
  }

  void feed(int layer, std::int64_t iteration) {
    const LayerHandle& handle = layers_[static_cast<std::size_t>(layer)];
    if (!handle.active()) return;
    DebugQuantizer* quantizer = handle.quantizer(TensorKind::kActivation);
    if (quantizer == nullptr) return;
    const Tensor x = made_up(job_.world().rank(), layer, iteration);
    static_cast<void>(quantizer->quantize(x.view(), {true, true}, {}));
  }

  /// A guard of the program's own, as a user's feature may have one: the ranks compare a number.
  void compare(std::int64_t iteration) {
    guard_->set_iteration(iteration);
    const CollectiveTag tag{.what = "comparison"};
    if (saboteur_.strikes("operation", "guard")) {
      std::array<double, CollectiveGuard::kFramePayload> sums{};
      guard_->reduce_sum(sums, tag);
    } else {
      std::array<std::uint32_t, CollectiveGuard::kFramePayload> words{};
      guard_->reduce_max(words, 1, tag);
    }
  }

  /// What the run is for: a sum over the ranks that must come out the same whatever happens to the observing.
  void train(std::int64_t iteration) {
    saboteur_.strike("train");
    if (saboteur_.strikes("skip", "train")) return;
    Tensor loss(DType::kF64, Shape{1});
    loss.values<double>()[0] = 1.0 / static_cast<double>(1 + iteration + job_.world().rank());
    job_.world().all_reduce(loss.mutable_view(), ReduceOp::kSum,
                            {.traffic = Traffic::kTrainer, .what = "loss"});
    loss_ += loss.view().values<double>()[0];
  }

  launch::Job& job_;
  Options options_;
  Saboteur saboteur_;
  FeatureRegistry registry_;
  std::shared_ptr<FlightRecorder> flight_;
  std::optional<launch::JobWatch> watch_;
  std::optional<ProcessGroups> groups_;
  std::unique_ptr<Communicator> compared_;
  std::optional<CollectiveGuard> guard_;
  std::optional<DebugSession> session_;
  std::vector<LayerHandle> layers_;
  double loss_ = 0;
};

}  // namespace
}  // namespace amaxscope::testing

int main(int argc, char** argv) {
  using namespace amaxscope;
  launch::Job job(&argc, &argv);
  try {
    testing::Training(job, testing::parse(argc, argv)).run();
    return 0;
  } catch (const launch::JobFailed& failed) {
    return failed.status;
  }
}

// What a step of a debugged training costs in collectives, bytes and time, against the number of layers and
// statistics, on as many ranks as it is started on. Prints a table, one line a configuration: rank 0's
// counts, which are everybody's, and the median time of a step on rank 0. usage: launch/mpirun_local -n RANKS
// build/release/bench/step_traffic
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "collectives/mpi/mpi_communicator.hpp"
#include "collectives/process_groups.hpp"
#include "features/builtin.hpp"
#include "runtime/session.hpp"

namespace amaxscope {
namespace {

constexpr int kSteps = 41;  ///< due and idle ones by turns

const std::vector<std::string> kStatistics = {"cur_amax", "min", "max", "mean",    "std", "l1_norm",
                                              "l2_norm",  "nan", "inf", "nonzero", "rms", "kurtosis"};

std::string config(int statistics) {
  return fmt::format(R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [{}]
      freq: 2
)",
                     fmt::join(kStatistics.begin(), kStatistics.begin() + statistics, ", "));
}

struct Cost {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  double seconds = 0;
};

class Run {
 public:
  Run(Communicator& world, ProcessGroups& groups, int layers, int statistics)
      : world_(world), session_(registry_, SessionGroups::from(groups), options(statistics)) {
    for (int i = 0; i < layers; ++i) {
      LayerDescription description;
      description.name = fmt::format("decoder.layers.{}.mlp.linear_fc1", i + 1);
      description.parallel = ParallelMode::kRow;
      description.tp_group = &groups.tp();
      handles_.push_back(session_.layer(description));
    }
  }

  /// Of the steps in which statistics are due, and of those in which none are.
  std::pair<Cost, Cost> measure() {
    std::vector<Cost> due;
    std::vector<Cost> idle;
    for (int step = 0; step < kSteps; ++step) {
      feed();
      world_.barrier({.traffic = Traffic::kTrainer, .what = "start of a step"});
      const std::uint64_t calls = world_.counters().calls(Traffic::kDebug);
      const std::uint64_t bytes = world_.counters().bytes(Traffic::kDebug);
      const auto start = std::chrono::steady_clock::now();
      session_.step();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      if (step == 0) continue;  // the ranks agree on what is registered there
      (step % 2 == 0 ? due : idle)
          .push_back({world_.counters().calls(Traffic::kDebug) - calls,
                      world_.counters().bytes(Traffic::kDebug) - bytes, seconds.count()});
    }
    return {median(due), median(idle)};
  }

 private:
  static SessionOptions options(int statistics) {
    SessionOptions options;
    options.config_text = config(statistics);
    return options;
  }
  static Cost median(std::vector<Cost> costs) {
    std::ranges::nth_element(costs, costs.begin() + static_cast<std::ptrdiff_t>(costs.size() / 2), {},
                             &Cost::seconds);
    return costs[costs.size() / 2];
  }
  void feed() {
    for (const LayerHandle& handle : handles_) {
      for (const TensorKind kind : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
        if (!handle.active()) continue;
        if (DebugQuantizer* quantizer = handle.quantizer(kind)) {
          static_cast<void>(quantizer->quantize(x_.view(), {true, true}, {}));
        }
      }
    }
  }

  Communicator& world_;
  FeatureRegistry registry_ = builtin_features();
  DebugSession session_;
  std::vector<LayerHandle> handles_;
  Tensor x_ = Tensor::of<float>({1, -2, 3, 4}, {2, 2});
};

int run(int argc, char** argv) {
  MpiEnvironment mpi(&argc, &argv);
  const auto world = make_mpi_communicator(MPI_COMM_WORLD);
  ProcessGroups groups(*world, {.tp = world->size()});
  const auto print = [&](const std::string& line) {
    if (world->rank() == 0) std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  };
  print(fmt::format("{:>5} {:>6} {:>10} {:>11} {:>10} {:>9} {:>10} {:>9}\n", "ranks", "layers", "statistics",
                    "collectives", "bytes", "due [us]", "idle calls", "idle [us]"));
  for (const int layers : {1, 8, 64}) {
    for (const int statistics : {1, 4, static_cast<int>(kStatistics.size())}) {
      const auto [due, idle] = Run(*world, groups, layers, statistics).measure();
      print(fmt::format("{:>5} {:>6} {:>10} {:>11} {:>10} {:>9.1f} {:>10} {:>9.2f}\n", world->size(), layers,
                        statistics, due.calls, due.bytes, due.seconds * 1e6, idle.calls, idle.seconds * 1e6));
    }
  }
  return 0;
}

}  // namespace
}  // namespace amaxscope

int main(int argc, char** argv) { return amaxscope::run(argc, argv); }

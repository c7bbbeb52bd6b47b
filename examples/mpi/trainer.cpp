// A program of several ranks with a session: groups over MPI, a flight record that it shares with the
// session, a sink of its own choice. The matrix that it "trains" is split over the ranks by columns. usage:
// mpirun -n RANKS trainer LOG_DIR
#include <amaxscope/collectives/mpi/mpi_communicator.hpp>
#include <amaxscope/features/builtin.hpp>
#include <amaxscope/runtime/session.hpp>
#include <amaxscope/runtime/sinks/tensorboard_sink.hpp>
#include <cstdio>
#include <utility>
#include <vector>

using namespace amaxscope;

namespace {

constexpr const char* kConfig = R"(
updates:
  enabled: True
  observe: weight$
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [cur_amax, mean]
)";

void train(const char* log_dir) {
  const auto world = make_mpi_communicator(MPI_COMM_WORLD);
  SessionOptions options;
  options.log_dir = log_dir;
  options.config_text = kConfig;
  auto flight = FlightRecorder::in_directory(options.log_dir / "flight", world->rank(), world->size());
  world->record_into(flight, "world");  // and every group that is split from it
  options.flight = flight;              // SessionOptions
  if (has_tensorboard_sink()) {
    options.extra_sinks.push_back(make_tensorboard_sink(options.log_dir, world->rank()));  // SessionOptions
  }
  const ProcessGroups groups(*world, {.tp = world->size()});
  DebugSession session(builtin_features(), SessionGroups::from(groups), std::move(options));

  flight->set_state(FlightState::kTraining);
  const auto first = static_cast<float>(world->rank());
  for (int step = 0; step < 3; ++step) {
    const Tensor weight = Tensor::of<float>({first, first - static_cast<float>(step)}, {2, 1});
    session.observe("fc1.weight", "parameter", weight.view(), Layout::kShard1);
    session.step();
  }
  session.close();
  flight->set_state(FlightState::kFinished);
}

}  // namespace

int main(int argc, char** argv) {
  const MpiEnvironment mpi(&argc, &argv);
  train(argc > 1 ? argv[1] : "logs");
  std::puts("done");
}

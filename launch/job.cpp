#include "launch/job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "collectives/exchange.hpp"
#include "collectives/flight_recorder.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"
#include "launch/failure.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::launch {

namespace {

// How long a failed rank waits for ranks that may be failing for the same reason.
constexpr std::chrono::seconds kGrace{3};

/// 0, or the highest status of all ranks. With a deadline: none when some rank did not come in time.
std::optional<int> highest_status(Communicator& control, int mine,
                                  std::optional<std::chrono::seconds> deadline) {
  auto status = std::make_shared<Tensor>(DType::kI32, Shape{1});
  status->values<std::int32_t>()[0] = mine;
  const CollectiveTag tag{.traffic = Traffic::kTrainer, .what = "agreement on failures"};
  const FlightScope recorded(control.flight().get(), control.flight_group(),
                             {.operation = FlightOperation::kAllReduce,
                              .tag = tag,
                              .count = 1,
                              .dtype = DType::kI32,
                              .op = ReduceOp::kMax});
  const auto start = std::chrono::steady_clock::now();
  const auto pending = control.start_all_reduce(status, ReduceOp::kMax, tag);
  while (!pending->test()) {
    if (deadline && std::chrono::steady_clock::now() - start > *deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return status->view().values<std::int32_t>()[0];
}

}  // namespace

Job::Job(int* argc, char*** argv)
    : mpi_(argc, argv),
      world_(make_mpi_communicator(MPI_COMM_WORLD)),
      control_(make_mpi_communicator(MPI_COMM_WORLD)) {}

void Job::record_into(std::shared_ptr<FlightRecorder> flight) {
  world_->record_into(flight, "world");
  control_->record_into(std::move(flight), "control");
}

void Job::record_failure(std::string_view why) {
  FlightRecorder* flight = control_->flight().get();
  if (flight == nullptr) return;
  flight->set_where(why.substr(0, why.find('\n')));
  flight->set_state(FlightState::kFailed);
}

void Job::agree(const std::function<void()>& stage) {
  Failure mine;
  try {
    stage();
  } catch (const JobFailed&) {
    throw;
  } catch (...) {
    mine = describe(std::current_exception());
    record_failure(mine.message);
  }

  const std::optional<std::chrono::seconds> deadline =
      mine.status == kDone ? std::nullopt : std::optional(kGrace);
  const std::optional<int> worst = highest_status(*control_, mine.status, deadline);
  if (!worst) {
    // The others sit in a collective that this rank will never join.
    const std::string reason = fmt::format("rank {}: {}", world_->rank(), mine.message);
    std::fputs(error_lines(reason).c_str(), stderr);
    std::fflush(nullptr);
    control_->abort(mine.status, reason);
  }
  if (*worst == kDone) return;
  if (mine.status == kDone) record_failure("another rank has failed");

  const CollectiveTag tag{.traffic = Traffic::kTrainer, .what = "failures of the ranks"};
  const std::vector<std::string> messages =
      all_gather_text(*control_, mine.status == kDone ? "" : "x" + mine.message, tag);
  if (is_leader()) {
    std::vector<Failure> failures;
    for (const std::string& message : messages) {
      failures.push_back(message.empty() ? Failure{} : Failure{kBadInput, message.substr(1)});
    }
    std::fflush(stdout);
    std::fputs(job_error_lines(failures).c_str(), stderr);
  }
  throw JobFailed{static_cast<ExitStatus>(*worst)};
}

void Job::agree_on(std::string_view what, const std::string& text) {
  const std::vector<std::string> texts =
      all_gather_text(*control_, text, {.traffic = Traffic::kTrainer, .what = "comparison of the ranks"});
  agree([&] {
    AMAXSCOPE_CHECK(text == texts[0], ErrorCode::kUsage,
                    "{} is `{}` here and `{}` on rank 0; all ranks must agree", what, text, texts[0]);
  });
}

std::string Job::leaders_text(const std::string& mine) {
  return broadcast_text(*control_, mine, 0, {.traffic = Traffic::kTrainer, .what = "the leader's text"});
}

std::string Job::joint_digest(const std::string& mine) {
  const std::vector<std::string> texts =
      all_gather_text(*control_, mine, {.traffic = Traffic::kTrainer, .what = "digests of the ranks"});
  return text_digest(fmt::format("{}", fmt::join(texts, "\n")));
}

ExitStatus Job::leaders(ExitStatus mine) {
  Tensor status(DType::kI32, Shape{1});
  status.values<std::int32_t>()[0] = mine;
  control_->broadcast(status.mutable_view(), 0,
                      {.traffic = Traffic::kTrainer, .what = "the leader's status"});
  return static_cast<ExitStatus>(status.view().values<std::int32_t>()[0]);
}

Job::Machine Job::machine() const {
  Machine machine;
  MPI_Comm here = MPI_COMM_NULL;
  const bool ok = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_->rank(), MPI_INFO_NULL,
                                      &here) == MPI_SUCCESS &&
                  MPI_Comm_rank(here, &machine.rank) == MPI_SUCCESS &&
                  MPI_Comm_size(here, &machine.ranks) == MPI_SUCCESS && MPI_Comm_free(&here) == MPI_SUCCESS;
  AMAXSCOPE_CHECK(ok, ErrorCode::kInternal, "MPI cannot tell which ranks share this machine");
  return machine;
}

std::string Job::mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown MPI";
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace amaxscope::launch

// A program that runs as the ranks of one MPI job: MPI itself, and one way of failing together.
// Owns MPI's initialisation and two communicators over all ranks: one for the work, one for agreeing. Used by
// the main thread. agree() blocks until every rank comes or one has failed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/mpi/mpi_communicator.hpp"
#include "launch/exit_status.hpp"

namespace amaxscope::launch {

/// The job has failed, and what there is to say has been said; every rank leaves with this status.
struct JobFailed {
  ExitStatus status;
};

class Job {
 public:
  Job(int* argc, char*** argv);

  [[nodiscard]] Communicator& world() const noexcept { return *world_; }
  /// The rank that speaks for all.
  [[nodiscard]] bool is_leader() const noexcept { return world_->rank() == 0; }

  /// Runs a stage on every rank; when it throws anywhere, the leader prints each distinct failure with its
  /// ranks and JobFailed is thrown everywhere. The stage may talk to other ranks: a rank that fails alone
  /// while the others wait for it inside the stage prints its failure and ends the job after a few seconds.
  void agree(const std::function<void()>& stage);

  /// From now on what the ranks say to each other, and why this one fails, is in its flight record.
  void record_into(std::shared_ptr<FlightRecorder> flight);

  /// A stage of its own: fails when a rank's text differs from the leader's, showing both.
  void agree_on(std::string_view what, const std::string& text);

  /// The leader's text on every rank.
  std::string leaders_text(const std::string& mine);
  /// A digest over the texts of all ranks, in the order of the ranks; the same on every rank.
  std::string joint_digest(const std::string& mine);
  /// The leader's status on every rank.
  ExitStatus leaders(ExitStatus mine);

  struct Machine {
    int rank = 0;  ///< this rank's number among the ranks of its machine
    int ranks = 1;
  };
  /// Collective.
  [[nodiscard]] Machine machine() const;
  /// "Open MPI v4.1.4"
  [[nodiscard]] static std::string mpi_version();

 private:
  void record_failure(std::string_view why);

  MpiEnvironment mpi_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> control_;
};

}  // namespace amaxscope::launch

// Speaks for a job that can no longer speak for itself: a thread of each rank that makes no MPI call.
//  - The launcher ends the ranks (SIGTERM), because one has died or the time is up: says who died and where
//  it
//    was, or where everybody is.
//  - This rank waits in a collective that has no deadline of its own, as the trainer's, and for the time of
//  one
//    nobody that it waits for has got on: says who is where and ends the process, on which the launcher ends
//    the job.
// One rank says it for all; it is in DIR/last_words.txt as well, DIR being where the flight records are.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "collectives/flight_recorder.hpp"

namespace amaxscope::launch {

class JobWatch {
 public:
  /// The status of a process that ends itself after waiting in vain.
  static constexpr int kWaitedInVain = 70;

  /// flight: of this rank, in a directory; the watch takes over SIGTERM until it is destroyed. One at a time.
  /// Throws Error(kIo).
  JobWatch(std::shared_ptr<FlightRecorder> flight, std::chrono::milliseconds deadline);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

 private:
  void watch();
  /// Once the deadline has passed in one and the same operation and the whole job stands still.
  [[nodiscard]] bool waited_in_vain();
  /// Goes up when any rank gets on.
  [[nodiscard]] std::uint64_t job_progress() const;
  /// Where each rank is, one a line.
  [[nodiscard]] std::string everybody(bool only_the_dead = false) const;
  [[nodiscard]] std::string who_died() const;
  /// False when another rank has said something already.
  bool say(const std::string& text) const;

  struct Wait {
    std::uint64_t progress = 0;  ///< of this rank
    std::chrono::steady_clock::time_point since;
    std::optional<std::uint64_t> of_the_job;  ///< at the last look; none: not looked yet
    std::chrono::steady_clock::time_point next_look;
  };
  std::shared_ptr<FlightRecorder> flight_;
  std::chrono::milliseconds deadline_;
  std::optional<Wait> wait_;
  int wake_read_ = -1;
  int wake_write_ = -1;
  std::thread thread_;
};

}  // namespace amaxscope::launch

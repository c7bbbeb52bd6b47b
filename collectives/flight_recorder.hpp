// The flight record of one rank: where it is and its last collectives, in a file that is mapped into memory,
// so that it outlives the process however that ends, and anybody may look at it at any time (FlightReader,
// `amaxscope doctor
// --flight`). Without a file the record is kept in memory, for this rank's own reports.
//
// Cost: an operation is two stamps of the clock and 256 bytes of memory; no system call, no allocation, no
// lock. Thread safety: one thread writes at a time, as with the communicators that share it. Readers need no
// permission.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/flight_record.hpp"
#include "core/clock.hpp"

namespace amaxscope {

/// An operation that begins; the strings need to live for the duration of the call only.
struct FlightOp {
  FlightOperation operation = FlightOperation::kBarrier;
  CollectiveTag tag;
  std::uint64_t count = 0;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  int world_peer = -1;                                   ///< the other end, or the root
  std::optional<std::int64_t> iteration = std::nullopt;  ///< none: the recorder's
};

class FlightRecorder {
 public:
  struct Options {
    std::size_t entries = 256;
    std::shared_ptr<const Clock> clock = nullptr;  ///< null: the system's
  };
  struct Ticket {
    std::uint64_t number = 0;
    std::uint64_t sequence = 0;
  };

  /// Writes directory/rank_R.flight, replacing what is there; makes the directory. Throws Error(kIo), also
  /// when the disk has no room for the file (some 110 KiB).
  static std::shared_ptr<FlightRecorder> in_directory(const std::filesystem::path& directory, int world_rank,
                                                      int world_size, Options options);
  static std::shared_ptr<FlightRecorder> in_directory(const std::filesystem::path& directory, int world_rank,
                                                      int world_size);
  static std::shared_ptr<FlightRecorder> in_memory(int world_rank, int world_size, Options options);

  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Where the files of all ranks are; empty: in memory.
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  [[nodiscard]] static std::filesystem::path file_of(const std::filesystem::path& directory, int world_rank);
  [[nodiscard]] int world_rank() const noexcept;
  [[nodiscard]] std::chrono::system_clock::time_point created() const noexcept { return created_; }

  /// A group of this rank, by which its operations are recorded from now on. A second one of the same name
  /// and members gets "#2" to its name: groups are made in the same order on all of their ranks.
  std::size_t add_group(std::string_view name, const std::vector<int>& world_ranks);

  /// Of a group that was added.
  [[nodiscard]] std::string group_name(std::size_t group) const;

  void set_state(FlightState state) noexcept;
  void set_iteration(std::int64_t iteration) noexcept;
  /// What the rank is doing, as "step()", or a layer and what is done in it.
  void set_where(std::string_view what, std::string_view layer = {}, std::string_view tensor = {}) noexcept;

  Ticket begin(std::size_t group, const FlightOp& op) noexcept;
  void end(const Ticket& ticket, FlightOutcome outcome) noexcept;
  /// This rank takes part in no collective of the group from now on (from: or, from this one on). Ranks that
  /// wait for it then need not wait for their deadline.
  void leave(std::size_t group, std::optional<std::uint64_t> from = std::nullopt) noexcept;

  /// The record of this rank as a reader sees it.
  [[nodiscard]] FlightRecord record() const;
  [[nodiscard]] FlightStatus status() const;

 private:
  FlightRecorder(std::filesystem::path directory, int world_rank, int world_size, Options options);
  void touch(std::uint64_t now_ns) noexcept;
  [[nodiscard]] std::uint64_t now_ns() const noexcept;

  struct Memory;
  std::filesystem::path directory_;
  std::size_t entries_;
  std::shared_ptr<const Clock> clock_;
  std::chrono::system_clock::time_point created_;
  std::unique_ptr<Memory> memory_;
};

/// Records one operation around a block; with a null recorder nothing but the test of the pointer.
class FlightScope {
 public:
  FlightScope(FlightRecorder* recorder, std::size_t group, const FlightOp& op) noexcept
      : recorder_(recorder) {
    if (recorder_ == nullptr) return;
    exceptions_ = std::uncaught_exceptions();
    ticket_ = recorder_->begin(group, op);
  }
  ~FlightScope() {
    if (recorder_ == nullptr) return;
    recorder_->end(ticket_, std::uncaught_exceptions() > exceptions_ ? FlightOutcome::kFailed
                                                                     : FlightOutcome::kCompleted);
  }
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  FlightRecorder* recorder_;
  FlightRecorder::Ticket ticket_;
  int exceptions_ = 0;
};

}  // namespace amaxscope

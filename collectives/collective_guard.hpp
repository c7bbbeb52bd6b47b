// Turns ranks that are in different collectives into an error instead of each other's bytes, and a rank that
// never comes into a report instead of a hang. One guard watches the debug traffic of one group.
//
// The signature of a collective (sequence number, operation, what, layer, tensor, count, iteration) travels
// in the same message as the data: words [s_lo, s_hi, ~s_lo, ~s_hi] under MAX. All ranks agree exactly when
// max(s) == ~max(~s), and all of them see the same outcome. Kinds of calls of different length get guards
// (and groups) of their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/clock.hpp"

namespace amaxscope {

/// One entry of the flight record.
struct FlightEntry {
  std::uint64_t sequence = 0;
  std::string description;  ///< "max amax 3 x u32, decoder.layers.1.mlp.linear_fc1 activation, iteration 7"
  std::int64_t iteration = 0;
  bool completed = false;
};

class CollectiveGuard {
 public:
  static constexpr std::size_t kSignatureWords = 4;
  static constexpr std::size_t kFrameWords = 64;
  /// Payload words of a frame.
  static constexpr std::size_t kFramePayload = kFrameWords - kSignatureWords;

  struct Options {
    std::chrono::milliseconds deadline = std::chrono::minutes(10);
    std::size_t flight_record_length = 64;
    std::shared_ptr<const Clock> clock = nullptr;  ///< null: the system's
  };

  /// The group must outlive the guard.
  CollectiveGuard(Communicator& group, Options options);

  [[nodiscard]] Communicator& group() const noexcept { return group_; }
  void set_iteration(std::int64_t iteration) noexcept { iteration_ = iteration; }
  [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }

  /// payload[i] = MAX over the group, in place: one collective of kSignatureWords + payload.size() words.
  /// payload.size() must be the same in every call on this guard (AmaxReducer: kFramePayload; a session's
  /// step: its agreed layout), so that ranks in different calls exchange equally long messages and find out
  /// from the signature. `used` is how many words mean something: it is signed, so unequal counts are found
  /// as well. Blocks until done or until the deadline. Throws Error(kMismatch) on every rank, naming each
  /// rank's own operation; Error(kDeadline) with the last entries of this rank's flight record. After either
  /// the group must not be used again: broken() is true.
  void reduce_max(std::span<std::uint32_t> payload, std::size_t used, const CollectiveTag& tag);

  /// reduce_max for a span of any length on a guard whose calls are frames: kFramePayload words a collective,
  /// and one collective for no words at all. Each frame is signed with the length of the whole.
  void reduce_max_in_frames(std::span<std::uint32_t> words, const CollectiveTag& tag);

  /// SUM over the group, in place, for a call whose length reduce_max has agreed on. Same blocking and
  /// errors.
  void reduce_sum(std::span<double> payload, const CollectiveTag& tag);

  [[nodiscard]] bool broken() const noexcept { return broken_; }
  [[nodiscard]] const std::deque<FlightEntry>& flight_record() const noexcept { return flight_record_; }

 private:
  void record(std::string description);
  void run(const std::shared_ptr<Tensor>& buffer, ReduceOp op, const CollectiveTag& tag);
  /// False when the deadline passed.
  bool complete(const std::shared_ptr<Tensor>& buffer, ReduceOp op, const CollectiveTag& tag);
  /// Every rank's text, by rank; nothing when the deadline passed.
  std::optional<std::vector<std::string>> gather_descriptions(const std::string& own);
  [[noreturn]] void report_mismatch();
  [[noreturn]] void report_deadline();

  Communicator& group_;
  Options options_;
  std::int64_t iteration_ = 0;
  std::uint64_t sequence_ = 0;
  bool broken_ = false;
  std::deque<FlightEntry> flight_record_;
};

}  // namespace amaxscope

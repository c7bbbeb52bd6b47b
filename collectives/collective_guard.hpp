// Turns ranks that are in different collectives into an error instead of each other's bytes, and a rank that
// never comes into a report instead of a hang. One guard watches the debug traffic of one group.
//
// The signature of a collective (sequence number, operation, what, layer, tensor, count, iteration) travels
// in the same message as the data (signature.hpp). Kinds of calls of different length get guards (and groups)
// of their own. Every call is an entry of the rank's flight record, and a rank that waits looks at those of
// the others now and then: it gives up early when one of them will never come, and does not while one of them
// gets on (a rank that writes a checkpoint comes minutes late in health).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/flight_recorder.hpp"
#include "collectives/inquiry.hpp"
#include "collectives/signature.hpp"
#include "core/clock.hpp"

namespace amaxscope {

class CollectiveGuard {
 public:
  static constexpr std::size_t kFrameWords = 64;
  /// Payload words of a frame.
  static constexpr std::size_t kFramePayload = kFrameWords - kMaxSignatureWords;

  struct Options {
    /// How long a rank waits while none of the missing ones gets on.
    std::chrono::milliseconds deadline = std::chrono::minutes(10);
    /// How often a waiting rank looks at the flight records of the others; less often when looking takes
    /// long.
    std::chrono::milliseconds look_every = std::chrono::seconds(1);
    std::shared_ptr<const Clock> clock = nullptr;  ///< null: the system's
  };

  /// The group must outlive the guard. Records into the group's flight recorder; when it has none, into one
  /// of its own, in memory.
  CollectiveGuard(Communicator& group, Options options);

  [[nodiscard]] Communicator& group() const noexcept { return group_; }
  void set_iteration(std::int64_t iteration) noexcept { iteration_ = iteration; }
  [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }

  /// payload[i] = MAX over the group, in place: one collective of kMaxSignatureWords + payload.size() words.
  /// payload.size() must be the same in every call on this guard (AmaxReducer: kFramePayload; a session's
  /// step: its agreed layout), so that ranks in different calls exchange equally long messages and find out
  /// from the signature. `used` is how many words mean something: it is signed, so unequal counts are found
  /// as well. Blocks until done or until the deadline. Throws Error(kMismatch) on every rank, naming each
  /// rank's own operation; Error(kDeadline) with the roll-call (who has arrived, where each of the others is)
  /// and this rank's last collectives, at once when a rank has left the group, is gone, or waits for this
  /// one; what the backend throws (such as messages of unequal length), with the roll-call. After any of them
  /// the group must not be used again: broken() is true, and the other ranks see that this one has left.
  void reduce_max(std::span<std::uint32_t> payload, std::size_t used, const CollectiveTag& tag);

  /// reduce_max for a span of any length on a guard whose calls are frames: kFramePayload words a collective,
  /// and one collective for no words at all. Each frame is signed with the length of the whole.
  void reduce_max_in_frames(std::span<std::uint32_t> words, const CollectiveTag& tag);

  /// SUM over the group, in place, signed likewise: one collective of kSumSignatureWords + payload.size()
  /// values. For a length that reduce_max has agreed on. Same blocking and errors.
  void reduce_sum(std::span<double> payload, const CollectiveTag& tag);

  /// This rank makes no further calls: those who wait for it need not wait any longer.
  void leave() noexcept { flight_->leave(flight_group_); }
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  [[nodiscard]] const FlightRecorder& flight() const noexcept { return *flight_; }

 private:
  /// A collective on its way.
  struct Call {
    std::shared_ptr<Tensor> buffer;
    ReduceOp op;
    CollectiveTag tag;
    std::size_t used;
    std::string own;  ///< "call 3: max amax 3 x u32, iteration 7"
  };
  /// Why a call was given up.
  struct GivenUp {
    FlightRecorder::Ticket ticket;
    std::chrono::milliseconds waited;
    std::string hopeless;  ///< empty: the deadline
  };

  [[nodiscard]] CallIdentity identity(ReduceOp op, const CollectiveTag& tag, std::size_t used,
                                      std::size_t length) const;
  [[nodiscard]] Call make_call(std::shared_ptr<Tensor> buffer, ReduceOp op, const CollectiveTag& tag,
                               std::size_t used) const;
  void run(const Call& call);
  /// Nothing when it has completed.
  std::optional<GivenUp> complete(const Call& call);
  std::optional<GivenUp> drive(PendingCollective& pending, const FlightRecorder::Ticket& ticket,
                               const std::string& own);
  /// Every rank's text, by rank; nothing when some rank did not come.
  std::optional<std::vector<std::string>> gather_descriptions(const std::string& own);
  [[noreturn]] void report_mismatch(const Call& call);
  [[noreturn]] void report_given_up(const Call& call, const GivenUp& given_up);
  [[nodiscard]] std::chrono::milliseconds look_every() const;
  [[nodiscard]] std::string roll_call(const FlightRecorder::Ticket& ticket) const;
  /// Those who have asked where this rank waits get to know.
  void answer(const Inquiry::Answer& own);
  /// Asks the ranks whose files say nothing here, which takes a moment.
  [[nodiscard]] std::string roll_call_with_questions(const FlightRecorder::Ticket& ticket,
                                                     const std::string& own);

  Communicator& group_;
  Options options_;
  std::shared_ptr<FlightRecorder> flight_;
  std::size_t flight_group_;
  std::optional<Inquiry> inquiry_;  ///< once this rank has waited, where the backend has messages
  std::int64_t iteration_ = 0;
  std::uint64_t sequence_ = 0;
  bool broken_ = false;
};

}  // namespace amaxscope

// Where threads that play the ranks of one job meet. The n-th call of every rank of a group is one operation:
// each deposits its part and the last to arrive reduces, so that the others only have to look.
// Thread safety: everything here may be called from all ranks' threads at once.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// One lock for a whole job, and its first failure, which releases every rank that waits.
class LoopbackJob {
 public:
  explicit LoopbackJob(int ranks) : ended_(static_cast<std::size_t>(ranks), false) {}

  void fail(std::exception_ptr error);
  /// This rank takes part in nothing more.
  void end(int world_rank);
  [[nodiscard]] std::exception_ptr first_failure();

 private:
  friend class Rendezvous;
  void fail_locked(std::exception_ptr error);
  /// Throws Error(kInternal) with the first failure's text.
  void require_no_failure() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::string failure_text_;
  std::vector<bool> ended_;
};

class Rendezvous {
 public:
  using Bytes = std::vector<std::byte>;
  using Contributions = std::vector<Bytes>;  ///< by rank

  enum class Kind : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier, kSplit };
  /// What all ranks must agree on.
  struct Call {
    Kind kind = Kind::kBarrier;
    std::size_t bytes = 0;
    std::optional<std::pair<DType, ReduceOp>> reduction = {};
    int root = 0;
    friend bool operator==(const Call&, const Call&) = default;
  };
  /// Every rank's part, or, of a reduction, the one result.
  struct Outcome {
    Contributions parts;
    Bytes reduced;
  };

  Rendezvous(std::shared_ptr<LoopbackJob> job, std::vector<int> world_ranks)
      : job_(std::move(job)), world_ranks_(std::move(world_ranks)), next_(world_ranks_.size(), 0) {}

  [[nodiscard]] const std::shared_ptr<LoopbackJob>& job() const noexcept { return job_; }
  [[nodiscard]] const std::vector<int>& world_ranks() const noexcept { return world_ranks_; }

  /// Deposits this rank's part and returns the operation's number; does not wait. Throws Error(kInternal) on
  /// every rank when this call is not the one that the others make.
  std::uint64_t arrive(int rank, const Call& call, Bytes part);
  /// Null until every rank has arrived. Throws Error(kInternal) when the job has failed before that.
  std::shared_ptr<const Outcome> poll(std::uint64_t number);
  /// Blocks until every rank has arrived. Throws Error(kInternal) when the job fails, or when a rank that is
  /// waited for has ended.
  std::shared_ptr<const Outcome> wait(std::uint64_t number);
  /// Blocks until `to` has received. Throws Error(kInternal) when that cannot happen: the job fails, `to` has
  /// ended, or `to` itself waits in a send to this rank.
  void send(int from, int to, Bytes message);
  /// Blocks until `from` sends. Throws Error(kInternal) when it has ended, when the job fails, and on both
  /// ranks when it sends another number of bytes.
  Bytes receive(int to, int from, std::size_t bytes);
  /// Leaves a text for `to`, which takes it when it likes.
  void post(int from, int to, std::string text);
  std::optional<SideMessage> take(int to);
  /// This rank has what it needs, or gives up; the last one out frees the operation.
  void leave(std::uint64_t number);

  /// The group that the operation `number` (a split) made for a color. Each member asks once; the first makes
  /// it.
  std::shared_ptr<Rendezvous> child(std::uint64_t number, int color,
                                    const std::vector<int>& child_world_ranks);

 private:
  struct Operation {
    Call call;
    int first = 0;  ///< who arrived first, for the message
    std::vector<bool> arrived;
    std::size_t arrivals = 0;
    std::size_t departures = 0;
    std::shared_ptr<Outcome> outcome;
    bool done = false;
  };

  struct Child {
    std::shared_ptr<Rendezvous> group;
    std::size_t asked = 0;
  };

  void finish(Operation& operation) const;
  [[nodiscard]] std::optional<int> missing_for_good(const Operation& operation) const;
  [[nodiscard]] bool has_ended(int rank) const;
  [[noreturn]] void fail(const std::string& text) const;

  std::shared_ptr<LoopbackJob> job_;
  std::vector<int> world_ranks_;
  std::vector<std::uint64_t> next_;  ///< by rank: the number of its next call
  std::map<std::uint64_t, Operation> operations_;
  std::map<std::pair<int, int>, Bytes> sent_;      ///< by sender and receiver: what was not received yet
  std::map<int, std::deque<SideMessage>> posted_;  ///< by receiver
  std::map<std::pair<std::uint64_t, int>, Child> children_;  ///< until each member has asked
};

}  // namespace amaxscope

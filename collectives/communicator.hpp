// A group of ranks and what they can do together. The one door through which all traffic goes: the public
// functions count, the protected ones are what a backend implements. No MPI or NCCL type appears here.
//
// Every rank of the group must call the same operations in the same order with the same counts; send and
// receive concern two ranks only, and their order is a matter between these two. Operations on CPU tensors
// block the host (a rank that never comes is a hang: CollectiveGuard puts a deadline on it). Those on tensors
// of device() are ordered on the view's stream and do not wait for the result: the memory is the operation's
// until that stream has come past it. A Communicator is used by one thread at a time.
// Ranks must hand in equally many bytes (shards of unequal size are padded by who has them).
// Errors: Error(kTensor) for a wrong view, Error(kInternal) with the backend's text when it fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/side_channel.hpp"
#include "core/tensor.hpp"

namespace amaxscope {

class FlightRecorder;

enum class ReduceOp { kSum, kMin, kMax };

/// Whose traffic a collective is: the trainer's own, its quantization recipe's (which happens with or without
/// a session), or the debug runtime's.
enum class Traffic : std::uint8_t { kTrainer, kRecipe, kDebug };

std::string_view to_string(ReduceOp op) noexcept;
std::string_view to_string(Traffic traffic) noexcept;

/// What a collective is for; the strings need to live for the duration of the call only.
struct CollectiveTag {
  Traffic traffic = Traffic::kDebug;
  std::string_view what;
  std::string_view layer = {};
  std::string_view tensor = {};
};

/// Calls of this rank and the payload bytes that it handed in, by kind of traffic; shared by a communicator
/// and all that were split from it. Splitting itself is set-up and not counted.
class TrafficCounters {
 public:
  void count(Traffic traffic, std::size_t bytes) noexcept;
  [[nodiscard]] std::uint64_t calls(Traffic traffic) const noexcept;
  [[nodiscard]] std::uint64_t bytes(Traffic traffic) const noexcept;

 private:
  struct Entry {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
  };
  std::array<Entry, 3> entries_;
};

/// A started collective. Destroying it before test() returned true abandons it: the backend keeps the buffer
/// alive until the process ends, because the library underneath may still write to it.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  /// Drives progress; true when the result is in the buffer. Never blocks.
  virtual bool test() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// The rank in the job's world of each member, by rank in this group.
  [[nodiscard]] const std::vector<int>& world_ranks() const noexcept { return world_ranks_; }
  /// The device whose tensors it takes besides the CPU's, if any.
  [[nodiscard]] virtual std::optional<Device> device() const noexcept { return std::nullopt; }

  /// io = op over the ranks, elementwise. f32, f64, i32, u32, i64, u64; f16 and bf16 with kSum (in fp32,
  /// rounded once) and kMin/kMax.
  void all_reduce(const MutableTensorView& io, ReduceOp op, const CollectiveTag& tag);
  /// all_reduce of each, of one type and on one device and stream: as if one after the other, and together
  /// where the library underneath can do that. Counted and recorded as one call.
  void all_reduce_each(std::span<const MutableTensorView> ios, ReduceOp op, const CollectiveTag& tag);
  /// all_reduce that does not wait. io is kept alive by the returned object.
  std::unique_ptr<PendingCollective> start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op,
                                                      const CollectiveTag& tag);
  /// out = the ranks' `in`, one after the other; out has size() times the elements of in. Any dtype.
  void all_gather(const TensorView& in, const MutableTensorView& out, const CollectiveTag& tag);
  /// out = this rank's slice (along the first dimension) of op over the ranks' `in`. Types as all_reduce.
  void reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op,
                      const CollectiveTag& tag);
  /// io on every rank = io on `root`. Any dtype.
  void broadcast(const MutableTensorView& io, int root, const CollectiveTag& tag);
  void barrier(const CollectiveTag& tag);
  /// Hands `in` to one other rank of the group. Any dtype. Returns when the memory may be used again, which
  /// may take until that rank receives: of two ranks that both want to send, one has to receive first.
  void send(const TensorView& in, int to, const CollectiveTag& tag);
  /// out = what another rank sends; its n-th send to this rank is this rank's n-th receive from it, of
  /// equally many bytes. Blocks until it is there. Counted as a call without payload.
  void receive(const MutableTensorView& out, int from, const CollectiveTag& tag);
  /// Ranks that give the same color form a group, ordered by key, then by rank here. Collective over all
  /// ranks; a negative color takes part and gets nullptr. The new group shares this one's counters and flight
  /// recorder, in which it is called as tag.what.
  std::unique_ptr<Communicator> split(int color, int key, const CollectiveTag& tag);

  /// Texts outside of the order of collectives, also while one hangs. Null where the backend has no way to
  /// send without waiting.
  [[nodiscard]] virtual std::unique_ptr<SideChannel> side_channel() { return nullptr; }

  /// Ends the whole job with this status and does not return (ranks that are threads of a test get an
  /// exception).
  [[noreturn]] virtual void abort(int status, std::string_view reason) = 0;

  [[nodiscard]] const TrafficCounters& counters() const noexcept { return *counters_; }

  /// From now on every operation of this group is written down, and those of groups that are split from it;
  /// what start_all_reduce starts is not: who drives it to its end records it (CollectiveGuard). Null: no
  /// more.
  void record_into(std::shared_ptr<FlightRecorder> recorder, std::string_view group_name);
  /// Null when nothing is recorded.
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& flight() const noexcept { return flight_; }
  /// Which group of the recorder this is.
  [[nodiscard]] std::size_t flight_group() const noexcept { return flight_group_; }

 protected:
  Communicator(std::vector<int> world_ranks, std::shared_ptr<TrafficCounters> counters);

  virtual void do_all_reduce(const MutableTensorView& io, ReduceOp op) = 0;
  /// Checked: at least one, of one type, device and stream. Here: one after the other.
  virtual void do_all_reduce_each(std::span<const MutableTensorView> ios, ReduceOp op);
  virtual std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) = 0;
  virtual void do_all_gather(const TensorView& in, const MutableTensorView& out) = 0;
  virtual void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) = 0;
  virtual void do_broadcast(const MutableTensorView& io, int root) = 0;
  virtual void do_barrier() = 0;
  virtual void do_send(const TensorView& in, int to) = 0;
  virtual void do_receive(const MutableTensorView& out, int from) = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key) = 0;

  [[nodiscard]] const std::shared_ptr<TrafficCounters>& shared_counters() const noexcept { return counters_; }

 private:
  std::vector<int> world_ranks_;
  std::shared_ptr<TrafficCounters> counters_;
  std::shared_ptr<FlightRecorder> flight_;
  std::size_t flight_group_ = 0;
};

}  // namespace amaxscope

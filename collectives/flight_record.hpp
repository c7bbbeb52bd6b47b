// What one rank has left behind of itself: where it is and its last collectives, as values. FlightRecorder
// writes it, FlightReader reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

enum class FlightState : std::uint8_t { kStarting, kTraining, kDetached, kFailed, kFinished };
enum class FlightOperation : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kBarrier,
  kSplit,
  kSend,
  kReceive,
};
enum class FlightOutcome : std::uint8_t { kRunning, kCompleted, kFailed };

std::string_view to_string(FlightState state) noexcept;
std::string_view to_string(FlightOperation operation) noexcept;

/// Sends and receives are between two ranks; everything else is done by the whole group in the same order.
constexpr bool is_collective(FlightOperation operation) noexcept {
  return operation != FlightOperation::kSend && operation != FlightOperation::kReceive;
}

/// A group that this rank is a member of. Its name and members (and which one of several with both alike) are
/// what identifies it on another rank.
struct FlightGroup {
  std::string name;
  std::vector<int> world_ranks;  ///< empty when there were too many groups to keep
  std::uint64_t calls = 0;       ///< collectives that this rank has entered
  /// The first collective of the group in which this rank no longer takes part.
  std::optional<std::uint64_t> left_at;

  [[nodiscard]] bool same_as(const FlightGroup& other) const {
    return name == other.name && world_ranks == other.world_ranks;
  }
};

/// An operation of a group as this rank has called it.
struct FlightCall {
  std::uint64_t number = 0;    ///< over all groups of the rank
  std::size_t group = 0;       ///< index into FlightStatus::groups
  std::uint64_t sequence = 0;  ///< among the collectives of the group; meaningless for a send or receive
  FlightOperation operation = FlightOperation::kBarrier;
  ReduceOp op = ReduceOp::kSum;  ///< of a reduction
  DType dtype = DType::kU8;
  std::uint64_t count = 0;  ///< elements this rank handed in
  int peer = -1;            ///< world rank of the other end, or of the root; -1: none
  Traffic traffic = Traffic::kTrainer;
  std::string what;
  std::string layer;
  std::string tensor;
  std::int64_t iteration = 0;
  std::chrono::system_clock::time_point begin;
  std::optional<std::chrono::system_clock::time_point> end;
  FlightOutcome outcome = FlightOutcome::kRunning;

  /// Everything that ranks in the same collective have in common.
  [[nodiscard]] bool same_as(const FlightCall& other) const {
    return operation == other.operation && op == other.op && dtype == other.dtype && count == other.count &&
           (operation != FlightOperation::kBroadcast || peer == other.peer) && what == other.what &&
           layer == other.layer && tensor == other.tensor && iteration == other.iteration;
  }
};

/// "max amax 3 x u32, decoder.layers.1.mlp.linear_fc1 activation, iteration 7", "broadcast config 12 x u8,
/// ..."
std::string describe(const FlightCall& call);

/// What a rank is blocked in.
struct FlightWait {
  std::size_t group = 0;
  std::uint64_t sequence = 0;     ///< of a collective
  std::optional<int> world_peer;  ///< of a send or receive
};

struct FlightStatus {
  int world_rank = 0;
  int world_size = 0;
  std::uint64_t pid = 0;
  std::uint64_t process_start = 0;  ///< clock ticks since the machine started: tells a reused pid
  std::uint64_t pid_namespace = 0;  ///< pids mean something within one only
  std::chrono::system_clock::time_point created;
  std::string host;
  std::string machine;  ///< differs with every start of every machine
  FlightState state = FlightState::kStarting;
  std::int64_t iteration = -1;
  std::uint64_t progress = 0;  ///< goes up with everything that the rank reports
  std::chrono::system_clock::time_point updated;
  std::string where;
  std::optional<FlightWait> inside;
  std::vector<FlightGroup> groups;

  /// The group that another rank knows by this name and these members; null when there is none.
  [[nodiscard]] const FlightGroup* find(const FlightGroup& group) const;
};

struct FlightRecord {
  FlightStatus status;
  std::vector<FlightCall> calls;  ///< the last ones, in their order
};

}  // namespace amaxscope

// Results of kernels that wait in device memory until step(): nothing waits for the device while a tensor is
// inspected, and step() fetches all of them in one copy for each stream.
//
// The same places serve a step that is captured into a CUDA graph: their addresses do not change, and kernels
// read in device memory whether they are due and at which iteration.
//
// Belongs to a config at work, as the accumulators that it feeds. Used by the session's thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "kernels/result_slot.hpp"
#include "runtime/schedule/schedule.hpp"

namespace amaxscope {

class StatAccumulator;

class DeviceResults {
 public:
  /// What a result is about. Requests with equal keys have one place, and while one tensor is inspected its
  /// kernels run once, whoever asks.
  struct Key {
    const void* tensor = nullptr;  ///< the InspectedTensor
    const void* owner = nullptr;   ///< a feature whose results are its own; null: anybody's
    int kind = 0;                  ///< of the owner's numbering
    bool eval = false;
    auto operator<=>(const Key&) const = default;
  };
  struct Request {
    Key key;
    std::string what;       ///< "activation of fc1", for messages
    std::size_t bytes = 0;  ///< of an Accumulated<Result>
    bool once = false;      ///< counts once in a step, however often it is handed in
    StatAccumulator* into = nullptr;
    const Schedule* due = nullptr;  ///< of the accumulator; outlives this
    /// Enqueues the kernels.
    std::function<void(const ResultSlot&)> launch;
    /// Notes what the host knows now and take() needs. Called with launch, and before each replay. May be
    /// empty.
    std::function<void()> note;
    /// Feeds `into`, in step(); accumulated: of `bytes`, in host memory.
    std::function<void(const std::byte* accumulated, std::int64_t iteration)> take;
  };

  DeviceResults() = default;
  DeviceResults(const DeviceResults&) = delete;
  DeviceResults& operator=(const DeviceResults&) = delete;

  /// From here on another tensor is inspected.
  void begin_tensor() noexcept { ++call_; }
  /// x: on a device. Does not wait. While its stream is captured: recorded, guarded by whether it is due.
  /// Throws Error(kUsage) for a capture that was not announced or has more results than it has room for.
  void add(const TensorView& x, Request request);

  /// Feeds what waits, of this iteration, and empties the places. Waits for the device when there is
  /// anything. Throws what CUDA says, Error(kUsage) when a replay ran with what another iteration had been
  /// told.
  void fetch(std::int64_t iteration);

  /// Whether something that was captured is due in this iteration, and nothing was said of it.
  [[nodiscard]] bool overlooked(std::int64_t iteration) const;

  /// Before the stream is captured: makes room for as many results, whose places then stay where they are.
  void begin_capture(Stream stream, std::size_t results);
  void end_capture() noexcept { capturing_ = nullptr; }
  [[nodiscard]] bool capturing() const noexcept { return capturing_ != nullptr; }
  [[nodiscard]] Stream capture_stream() const;
  /// Before a captured step is launched on the stream it was captured on: says in device memory which results
  /// are due. Does not wait.
  void before_replay(std::int64_t iteration);
  /// Replays add nothing from now on.
  void silence() noexcept;
  /// The memory that captured kernels name, to be kept as long as they may run.
  [[nodiscard]] std::shared_ptr<void> captured_memory() const;

 private:
  struct Consumer {
    StatAccumulator* into;
    const Schedule* due;
    std::function<void()> note;
    std::function<void(const std::byte*, std::int64_t)> take;
    bool waits = false;     ///< for what was launched in this step
    bool captured = false;  ///< fed by replays
  };
  struct Slot {
    std::string what;
    std::size_t chunk = 0;
    std::size_t offset = 0;
    std::size_t flag = 0;    ///< place among the flags; of captured ones
    std::uint64_t call = 0;  ///< begin_tensor() at which it was launched last
    bool fed = false;        ///< launched in this step
    std::uint64_t pass = 0;  ///< capture in which it was launched last; 0: in none
    std::vector<Consumer> consumers;
  };
  /// Work of one stream.
  struct Queue {
    TensorView like;  ///< of no element, to be beside
    Tensor workspace;
    std::vector<Tensor> chunks;
    std::vector<std::size_t> used;  ///< bytes of each chunk
    Tensor control;                 ///< i64 iteration, then a u32 flag for each captured slot
    std::size_t flags = 0;
    bool any_flag_set = false;         ///< as the device has them
    std::optional<std::int64_t> told;  ///< the iteration of the flags, where all captured slots had one
    std::map<Key, std::unique_ptr<Slot>> slots;
  };

  Queue& queue_of(const TensorView& like);
  Slot& slot_of(Queue& queue, const Request& request);
  static Consumer& consumer_of(Slot& slot, Request& request);
  void reserve(Queue& queue, std::size_t bytes);
  [[nodiscard]] static bool is_due(const Slot& slot, std::int64_t iteration);
  static void write_control(Queue& queue, std::int64_t iteration, bool none);
  void fetch_queue(Queue& queue, std::int64_t iteration);

  std::map<std::pair<int, void*>, std::shared_ptr<Queue>> queues_;  ///< by device and stream
  std::shared_ptr<Queue> capturing_;
  std::uint64_t call_ = 0;
  std::uint64_t pass_ = 0;
  bool replayed_ = false;  ///< in this step
};

}  // namespace amaxscope

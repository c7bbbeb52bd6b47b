// Streams and events of the imitated CUDA runtime. Internal to tests/fake.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::fake {

/// Works off its queue on a thread of its own, which ends when the queue was closed and is empty.
class StreamQueue {
 public:
  static std::shared_ptr<StreamQueue> start();

  void push(std::function<void()> work);
  void close();
  [[nodiscard]] bool idle();
  /// How much is queued or running.
  [[nodiscard]] std::size_t pending();
  void wait_idle();
  /// False when it was not idle in time.
  bool wait_idle_for(std::chrono::milliseconds limit);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool closed_ = false;
};

class EventState {
 public:
  /// The number of this record.
  std::uint64_t record();
  void complete(std::uint64_t number);
  [[nodiscard]] std::uint64_t recorded();
  [[nodiscard]] bool done();
  void wait(std::uint64_t number);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::uint64_t completed_ = 0;
};

/// Null: the default stream. A null pointer for a stream that was destroyed or never made.
std::shared_ptr<StreamQueue> queue_of(cudaStream_t stream);
/// Waits for every stream; false when some did not end in time.
bool wait_all_idle_for(std::chrono::milliseconds limit);

}  // namespace amaxscope::fake

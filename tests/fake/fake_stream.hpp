// Streams and events of the imitated CUDA runtime. Internal to tests/fake.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::fake {

/// What a stream was given to do while it was captured.
struct Capture {
  Capture(unsigned long long number, cudaStreamCaptureMode how) : id(number), mode(how) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();  ///< frees its memory

  struct Node {
    std::function<void()> work;
    std::function<void()> again;  ///< whenever the work is put into a queue; may be empty
  };
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::vector<Node> nodes;
  std::set<void*> memory;   ///< allocated in it
  std::set<void*> unfreed;  ///< and not freed in it
  bool invalid = false;     ///< by a call that a capture does not allow
};

/// Works off its queue on a thread of its own, which ends when the queue was closed and is empty.
class StreamQueue {
 public:
  static std::shared_ptr<StreamQueue> start();

  /// Into the queue, or into the capture; true then.
  bool push(std::function<void()> work, std::function<void()> again = {});
  /// False when there is one.
  bool begin_capture(cudaStreamCaptureMode mode);
  /// Null when there is none.
  std::shared_ptr<Capture> end_capture();
  [[nodiscard]] std::shared_ptr<Capture> capture();
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
  std::shared_ptr<Capture> capture_;
};

class EventState {
 public:
  /// The number of this record.
  std::uint64_t record();
  /// Recorded in a capture instead: from now on it can be waited for there only.
  void record_in(unsigned long long capture);
  /// The capture, or 0.
  [[nodiscard]] unsigned long long captured();
  void complete(std::uint64_t number);
  [[nodiscard]] std::uint64_t recorded();
  [[nodiscard]] bool done();
  void wait(std::uint64_t number);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0;
  std::uint64_t completed_ = 0;
  unsigned long long capture_ = 0;
};

/// Null: the default stream. A null pointer for a stream that was destroyed or never made.
std::shared_ptr<StreamQueue> queue_of(cudaStream_t stream);
/// Waits for every stream; false when some did not end in time.
bool wait_all_idle_for(std::chrono::milliseconds limit);

}  // namespace amaxscope::fake

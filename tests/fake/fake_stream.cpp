#include "tests/fake/fake_stream.hpp"

#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "tests/fake/fake_state.hpp"

namespace amaxscope::fake {

Capture::~Capture() {
  for (void* const address : memory) {
    State::get().remove_memory(address, MemoryKind::kDevice);
    std::free(address);
  }
}

std::shared_ptr<StreamQueue> StreamQueue::start() {
  auto queue = std::make_shared<StreamQueue>();
  std::thread([queue] { queue->work(); }).detach();
  return queue;
}

void StreamQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    const auto delay = State::get().with_settings([](auto& settings) { return settings.stream_delay; });
    if (delay.count() != 0) std::this_thread::sleep_for(delay);
    next();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

bool StreamQueue::push(std::function<void()> work, std::function<void()> again) {
  {
    const std::scoped_lock lock(mutex_);
    if (capture_ != nullptr) {
      capture_->nodes.push_back({std::move(work), std::move(again)});
      return true;
    }
    queue_.push_back(std::move(work));
  }
  if (again) again();
  changed_.notify_all();
  return false;
}

bool StreamQueue::begin_capture(cudaStreamCaptureMode mode) {
  static std::atomic<unsigned long long> captures{0};
  const std::scoped_lock lock(mutex_);
  if (capture_ != nullptr) return false;
  capture_ = std::make_shared<Capture>(++captures, mode);
  return true;
}

std::shared_ptr<Capture> StreamQueue::end_capture() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(capture_, nullptr);
}

std::shared_ptr<Capture> StreamQueue::capture() {
  const std::scoped_lock lock(mutex_);
  return capture_;
}

void StreamQueue::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool StreamQueue::idle() { return pending() == 0; }

std::size_t StreamQueue::pending() {
  const std::scoped_lock lock(mutex_);
  return queue_.size() + (busy_ ? 1 : 0);
}

void StreamQueue::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

bool StreamQueue::wait_idle_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return queue_.empty() && !busy_; });
}

std::uint64_t EventState::record() {
  const std::scoped_lock lock(mutex_);
  capture_ = 0;
  return ++recorded_;
}

void EventState::record_in(unsigned long long capture) {
  const std::scoped_lock lock(mutex_);
  capture_ = capture;
}

unsigned long long EventState::captured() {
  const std::scoped_lock lock(mutex_);
  return capture_;
}

void EventState::complete(std::uint64_t number) {
  {
    const std::scoped_lock lock(mutex_);
    completed_ = std::max(completed_, number);
  }
  changed_.notify_all();
}

std::uint64_t EventState::recorded() {
  const std::scoped_lock lock(mutex_);
  return recorded_;
}

bool EventState::done() {
  const std::scoped_lock lock(mutex_);
  return completed_ >= recorded_;
}

void EventState::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return completed_ >= number; });
}

bool enqueue(cudaStream_t stream, std::function<void()> work, std::function<void()> again) {
  const std::shared_ptr<StreamQueue> queue = queue_of(stream);
  if (queue == nullptr) {
    add_violation("work for a stream that does not exist");
    return false;
  }
  return queue->push(std::move(work), std::move(again));
}

}  // namespace amaxscope::fake

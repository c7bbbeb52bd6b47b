#include "kernels/worker_pool.hpp"

#include <sched.h>

#include <hwy/cache_control.h>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// About 20 microseconds: a kernel often follows another, and a sleeping thread takes twice that to wake up.
constexpr int kSpins = 500;

/// Returns when the value is another one.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

WorkerPool::WorkerPool(unsigned threads) : threads_(threads) {
  AMAXSCOPE_CHECK(threads >= 1, ErrorCode::kUsage, "a pool of {} threads; it takes at least 1", threads);
}

WorkerPool::~WorkerPool() {
  stop_.store(true, std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::start() {
  workers_.reserve(threads_ - 1);
  while (workers_.size() + 1 < threads_) workers_.emplace_back([this] { work(); });
}

void WorkerPool::run(std::size_t parts, const std::function<void(std::size_t)>& part) {
  if (threads_ == 1 || parts < 2 || shared_.exchange(true, std::memory_order_acquire)) {
    for (std::size_t i = 0; i < parts; ++i) part(i);
    return;
  }
  struct GiveBack {
    std::atomic<bool>& shared;
    ~GiveBack() { shared.store(false, std::memory_order_release); }
  } const give_back{shared_};
  share(parts, part);
}

void WorkerPool::share(std::size_t parts, const std::function<void(std::size_t)>& part) {
  if (workers_.empty()) start();
  part_ = &part;
  parts_ = parts;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  take_parts();
  // All of them, also those without a part: they would find the next job's otherwise.
  for (std::uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    wait_while(busy_, busy);
  }
}

void WorkerPool::work() {
  for (std::uint32_t seen = 0;;) {
    wait_while(job_, seen);
    const std::uint32_t job = job_.load(std::memory_order_acquire);
    if (job == seen) continue;
    seen = job;
    if (stop_.load(std::memory_order_relaxed)) return;
    take_parts();
    busy_.fetch_sub(1, std::memory_order_release);
    busy_.notify_one();
  }
}

void WorkerPool::take_parts() {
  for (std::size_t i = next_.fetch_add(1, std::memory_order_relaxed); i < parts_;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    (*part_)(i);
  }
}

WorkerPool* WorkerPool::of(const TensorView& view) noexcept {
  return view.device().kind == DeviceKind::kCpu ? static_cast<WorkerPool*>(view.stream().handle) : nullptr;
}

std::shared_ptr<WorkerPool> WorkerPool::shared_of(const TensorView& view) noexcept {
  WorkerPool* const pool = of(view);
  return pool == nullptr ? nullptr : pool->weak_from_this().lock();
}

unsigned bound_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  const auto usable = static_cast<unsigned>(CPU_COUNT(&cores));
  return usable >= 1 && usable < std::thread::hardware_concurrency() ? usable : 1;
}

TensorView on_stream(const TensorView& view, Stream stream) {
  return {view.data(), view.dtype(), view.shape(), view.device(), stream, view.row_stride()};
}

TensorView with_default_stream(const TensorView& view, Stream stream) {
  const bool has_own = view.device().kind != DeviceKind::kCpu || view.stream().handle != nullptr;
  return has_own ? view : on_stream(view, stream);
}

}  // namespace amaxscope

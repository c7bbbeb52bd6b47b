#include "tests/emulator/emulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/fiber.hpp"

#ifdef AMAXSCOPE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace amaxscope::emulator {

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kSharedBytes = 48 << 10;  // what a kernel may declare without asking for more
constexpr std::size_t kSharedAlignment = 16;

std::string place(const std::source_location& where) {
  return fmt::format("{}:{}", where.file_name(), where.line());
}

/// Memory of one block. Each object lies behind bytes that the address sanitizer guards.
class SharedMemory {
 public:
  SharedMemory() : memory_(new std::byte[kSize]) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { guard(false, 0, kSize); }

  void clear() {
    objects_.clear();
    used_ = 0;
    declared_ = 0;
    guard(true, 0, kSize);
  }
  void* object(const void* key, std::size_t bytes) {
    for (const auto& [known, offset] : objects_) {
      if (known == key) return memory_.get() + offset;
    }
    declared_ += (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    if (declared_ > kSharedBytes) return nullptr;
    const std::size_t offset = used_;
    guard(false, offset, bytes);
    // Volatile, so that this does not become a memset, which the thread sanitizer would take for a write of
    // the kernel.
    volatile std::byte* object = memory_.get() + offset;
    for (std::size_t i = 0; i < bytes; ++i) object[i] = std::byte{0xFF};
    used_ += (bytes + 2 * kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    objects_.emplace_back(key, offset);
    return memory_.get() + offset;
  }

 private:
  static constexpr std::size_t kSize = 2 * kSharedBytes;
  void guard([[maybe_unused]] bool forbid, [[maybe_unused]] std::size_t first,
             [[maybe_unused]] std::size_t bytes) {
#ifdef AMAXSCOPE_ASAN
    if (forbid) {
      __asan_poison_memory_region(memory_.get() + first, bytes);
    } else {
      __asan_unpoison_memory_region(memory_.get() + first, bytes);
    }
#endif
  }
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::pair<const void*, std::size_t>> objects_;
  std::size_t used_ = 0;
  std::size_t declared_ = 0;
};

enum class State { kReady, kAtBarrier, kInWarpOperation, kDone };

struct Request {
  WarpOperation operation = WarpOperation::kSync;
  unsigned mask = 0;
  std::uint32_t value = 0;
  unsigned source = 0;
};

/// Leads a thread that has failed out of its kernel.
struct Abandoned {};

class Block;

struct Thread {
  Identity identity;
  Fiber fiber;
  Block* block = nullptr;
  unsigned index = 0;
  State state = State::kDone;
  std::source_location where;
  Request request;
  std::uint32_t result = 0;
};

struct Warp {
  unsigned waiting = 0;
  unsigned live = 0;
};

thread_local Thread* running = nullptr;

/// What the workers of one launch share.
struct Launch {
  Launch(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel)
      : grid(grid_size), size(block_size), body(kernel) {}

  dim3 grid;
  dim3 size;
  const std::function<void()>& body;
  std::vector<std::uint64_t> order;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string failure;
  std::vector<std::unique_ptr<SharedMemory>> used;  // kept where it may not be used again

  void report(const std::string& what) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) failure = what;
  }
};

/// Runs blocks one after the other, on one thread of the operating system.
class Block {
 public:
  Block(Launch& launch, std::uint64_t seed) : launch_(launch) {
    if (seed != 0) random_.emplace(seed);
    const unsigned count = launch.size.x * launch.size.y * launch.size.z;
    threads_ = std::vector<Thread>(count);
    warps_ = std::vector<Warp>((count + kWarp - 1) / kWarp);
    order_.resize(count);
  }

  void run(std::uint64_t number) {
    start(number);
    while (live_ != 0 && !failed_) {
      if (random_) std::shuffle(order_.begin(), order_.end(), *random_);
      bool progress = false;
      for (const unsigned i : order_) {
        Thread& thread = threads_[i];
        if (thread.state != State::kReady) continue;
        progress = true;
        running = &thread;
        thread.fiber.resume();
        if (failed_) break;
      }
      if (!progress) report_deadlock();
    }
    running = nullptr;
    for (Thread& thread : threads_) thread.fiber.discard();
    if (!memory_is_reusable()) {
      const std::lock_guard lock(launch_.mutex);
      launch_.used.push_back(std::move(shared_));
    }
  }

  void barrier(Thread& thread, const std::source_location& where) {
    thread.where = where;
    void* token = &tokens_[generation_ % 2];
    release(token);
    if (++arrived_ < threads_.size()) {
      wait(thread, State::kAtBarrier);
    } else {
      for (const Thread& other : threads_) {
        if (other.where.line() != where.line() ||
            std::strcmp(other.where.file_name(), where.file_name()) != 0) {
          fail(thread, fmt::format("waits at {} while thread {} waits at {}", place(where), other.index,
                                   place(other.where)));
        }
      }
      arrived_ = 0;
      ++generation_;
      for (Thread& other : threads_) other.state = State::kReady;
    }
    acquire(token);
  }

  std::uint32_t warp_operation(Thread& thread, const Request& request, const std::source_location& where) {
    Warp& warp = warps_[thread.index / kWarp];
    const unsigned own = 1U << (thread.index % kWarp);
    thread.where = where;
    thread.request = request;
    if ((request.mask & own) == 0) {
      fail(thread, fmt::format("is not in its own mask {:08x} at {}", request.mask, place(where)));
    }
    if ((request.mask & ~warp.live) != 0) {
      fail(thread, fmt::format("waits at {} for lanes {:08x}, which have left or never were", place(where),
                               request.mask & ~warp.live));
    }
    const bool orders_memory = request.operation == WarpOperation::kSync;
    if (orders_memory) release(&warp);
    warp.waiting |= own;
    if ((warp.waiting & request.mask) != request.mask) {
      wait(thread, State::kInWarpOperation);
    } else {
      complete(thread, warp);
    }
    if (orders_memory) acquire(&warp);
    return thread.result;
  }

  void* shared_object(Thread& thread, const void* key, std::size_t bytes) {
    void* object = shared_->object(key, bytes);
    if (object == nullptr)
      fail(thread, fmt::format("declares more than {} B of shared memory", kSharedBytes));
    return object;
  }

  [[noreturn]] void fail(Thread& thread, const std::string& what) {
    const dim3& block = thread.identity.block;
    launch_.report(
        fmt::format("block ({}, {}, {}): thread {} {}", block.x, block.y, block.z, thread.index, what));
    failed_ = true;
    throw Abandoned{};
  }

 private:
  void start(std::uint64_t number) {
    if (!shared_) shared_ = std::make_unique<SharedMemory>();
    shared_->clear();
    live_ = static_cast<unsigned>(threads_.size());
    arrived_ = 0;
    std::ranges::fill(warps_, Warp{});
    const dim3 grid = launch_.grid;
    const dim3 size = launch_.size;
    for (unsigned i = 0; i < threads_.size(); ++i) {
      order_[i] = i;
      Thread& thread = threads_[i];
      thread.identity = {
          .thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)},
          .block = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                    static_cast<unsigned>(number / grid.x / grid.y)},
          .block_size = size,
          .grid_size = grid};
      thread.block = this;
      thread.index = i;
      thread.state = State::kReady;
      warps_[i / kWarp].live |= 1U << (i % kWarp);
      thread.fiber.prepare(&Block::run_thread, &thread);
    }
  }

  void wait(Thread& thread, State state) {
    thread.state = state;
    release(&launch_);  // in case it is never resumed
    thread.fiber.leave();
  }

  static void run_thread(void* argument) {
    Thread& thread = *static_cast<Thread*>(argument);
    Block& block = *thread.block;
    try {
      block.launch_.body();
    } catch (const Abandoned&) {  // failed_ says so; left here, so that nothing of the exception stays behind
    }
    release(&block.launch_);
    thread.state = State::kDone;
    --block.live_;
    block.warps_[thread.index / kWarp].live &= ~(1U << (thread.index % kWarp));
    thread.fiber.finish();
  }

  /// All lanes of the mask are there: gives each its result.
  void complete(Thread& last, Warp& warp) {
    const unsigned mask = last.request.mask;
    const unsigned first = last.index / kWarp * kWarp;
    warp.waiting &= ~mask;
    std::uint32_t largest = 0;
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
      const Thread& other = threads_[first + static_cast<unsigned>(std::countr_zero(lanes))];
      if (other.request.mask != mask || other.request.operation != last.request.operation) {
        fail(last, fmt::format("at {} meets thread {} in another warp operation, at {}", place(last.where),
                               other.index, place(other.where)));
      }
      largest = std::max(largest, other.request.value);
    }
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
      Thread& other = threads_[first + static_cast<unsigned>(std::countr_zero(lanes))];
      other.result = largest;
      if (last.request.operation == WarpOperation::kShuffle) {
        const unsigned source = other.request.source;
        if (source >= kWarp || ((mask >> source) & 1U) == 0) {
          fail(other,
               fmt::format("reads lane {} outside the mask {:08x} at {}", source, mask, place(other.where)));
        }
        other.result = threads_[first + source].request.value;
      }
      other.state = State::kReady;
    }
  }

  void report_deadlock() {
    std::string text;
    unsigned waiting = 0;
    for (const Thread& thread : threads_) {
      if (thread.state == State::kDone) continue;
      if (++waiting > 4) continue;
      text += fmt::format("{} thread {} {} at {}", waiting == 1 ? "" : ",", thread.index,
                          thread.state == State::kAtBarrier ? "in a barrier" : "in a warp operation",
                          place(thread.where));
    }
    const dim3& block = threads_[0].identity.block;
    launch_.report(fmt::format("block ({}, {}, {}): deadlock, {} of {} threads wait:{}", block.x, block.y,
                               block.z, waiting, threads_.size(), text));
    failed_ = true;
  }

  Launch& launch_;
  std::optional<std::mt19937_64> random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  std::unique_ptr<SharedMemory> shared_;
  std::array<char, 2> tokens_{};
  unsigned generation_ = 0;
  unsigned arrived_ = 0;
  unsigned live_ = 0;
  bool failed_ = false;
};

void work(Launch& launch, std::uint64_t seed) {
  Block block(launch, seed);
  while (!launch.failed) {
    const std::size_t next = launch.next.fetch_add(1);
    if (next >= launch.order.size()) break;
    block.run(launch.order[next]);
  }
  acquire(&launch);  // all that the fibers did was before their memory goes
}

Thread& running_thread() {
  if (running == nullptr) throw std::logic_error("device code runs outside a kernel");
  return *running;
}

}  // namespace

Settings& settings() {
  static Settings settings;
  return settings;
}

int enqueue(void* stream, std::function<void()> action) {
  if (settings().enqueue) return settings().enqueue(stream, std::move(action));
  action();
  return 0;
}

bool is_launchable(dim3 grid, dim3 block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads >= 1 && threads <= kMaxThreads && block.z <= 64 && grid.x >= 1 && grid.x <= 0x7FFFFFFFU &&
         grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535;
}

void run_kernel(dim3 grid, dim3 block, const std::function<void()>& body) {
  Launch launch(grid, block, body);
  launch.order.resize(std::size_t{grid.x} * grid.y * grid.z);
  for (std::size_t i = 0; i < launch.order.size(); ++i) launch.order[i] = i;
  const std::uint64_t seed = settings().seed;
  if (seed != 0) std::shuffle(launch.order.begin(), launch.order.end(), std::mt19937_64(seed));
  const std::size_t workers = std::clamp<std::size_t>(settings().workers, 1, launch.order.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers; ++i) {
    threads.emplace_back([&launch, seed, i] { work(launch, seed == 0 ? 0 : seed + i); });
  }
  for (std::thread& thread : threads) thread.join();
  acquire(&launch);
  if (launch.failed) throw Failure(launch.failure);
}

void fill(void* target, int value, std::size_t bytes) { std::memset(target, value, bytes); }

const Identity& current() { return running_thread().identity; }
unsigned lane() { return running_thread().index % kWarp; }

void barrier(std::source_location where) {
  Thread& thread = running_thread();
  thread.block->barrier(thread, where);
}

std::uint32_t warp_operation(WarpOperation operation, unsigned mask, std::uint32_t value, unsigned source,
                             std::source_location where) {
  Thread& thread = running_thread();
  return thread.block->warp_operation(thread, {operation, mask, value, source}, where);
}

void fail(const char* what, std::source_location where) {
  Thread& thread = running_thread();
  thread.block->fail(thread, fmt::format("{} at {}", what, place(where)));
}

void require_aligned(const void* address, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
  Thread& thread = running_thread();
  thread.block->fail(thread, fmt::format("reads or writes {} bytes at a misaligned address", alignment));
}

void* shared_object(const void* key, std::size_t bytes) {
  Thread& thread = running_thread();
  return thread.block->shared_object(thread, key, bytes);
}

}  // namespace amaxscope::emulator

// What the imitations of CUDA and NCCL share. Internal to tests/fake.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::fake {

enum class MemoryKind { kDevice, kPinned };

class State {
 public:
  /// The state of the process. Never destroyed: streams may outlive main().
  static State& get();

  void reset();
  /// Counts the call. The error that it is to answer with, if any.
  std::optional<int> enter(std::string_view function);
  void fail_at(std::string_view function, int nth, int error);
  [[nodiscard]] int calls(std::string_view function);
  [[nodiscard]] std::vector<std::string> called();

  void add_violation(std::string text);
  [[nodiscard]] std::vector<std::string> violations();

  void add_memory(void* base, std::size_t bytes, MemoryKind kind);
  /// False when there is none of this kind that begins there.
  bool remove_memory(void* base, MemoryKind kind);
  /// Memory that was freed under work that may still touch it: lives as long as the process.
  void keep_forever(void* base) {
    const std::scoped_lock lock(mutex_);
    kept_.push_back(base);
  }
  /// From now on no call may name it; what was enqueued before may. False as remove_memory.
  bool give_up_memory(void* base);
  /// Of the memory that begins there; 0: there is none.
  [[nodiscard]] std::size_t bytes_of(void* base);
  /// True when all of it lies in one allocation of the kind.
  [[nodiscard]] bool inside(const void* address, std::size_t bytes, MemoryKind kind,
                            bool given_up_too = false);
  [[nodiscard]] std::size_t memory_count(MemoryKind kind);

  struct Settings {
    int devices = 1;
    cudaError_t driver_error = cudaSuccess;
    int nccl_version = NCCL_VERSION_CODE;
    std::chrono::microseconds stream_delay{0};
    int pageable_copies = 0;
    int capability = 90;
  };
  template <class F>
  auto with_settings(F f) {
    const std::scoped_lock lock(mutex_);
    return f(settings_);
  }

 private:
  struct Memory {
    std::size_t bytes;
    MemoryKind kind;
    bool given_up = false;
  };
  struct Fault {
    int left;
    int error;
  };

  std::mutex mutex_;
  Settings settings_;
  std::map<std::string, int, std::less<>> calls_;
  std::map<std::string, Fault, std::less<>> faults_;
  std::vector<std::string> violations_;
  std::map<const std::byte*, Memory> memory_;
  std::vector<void*> kept_;
};

/// Calls the predicate until it is true; true then. False when `given_up` says so first.
template <class Done, class GivenUp>
bool wait_for(Done done, GivenUp given_up) {
  constexpr int kSpins = 100;
  for (int tests = 0; !done(); ++tests) {
    if (given_up()) return false;
    if (tests < kSpins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  return true;
}

}  // namespace amaxscope::fake

// Runs CUDA kernels on the CPU, for tests: one fiber for each CUDA thread, so that barriers and warp
// operations wait as they do on a device, and what they may not do is found: barriers that not every thread
// reaches or that are reached in different places, lanes outside a mask, reads of shared memory before it is
// written, misaligned vectors. Data races and stores out of bounds are for the sanitizers to find, which are
// told of the fibers. Kernels include tests/emulator/include/cuda_runtime.h in place of the toolkit's header
// of that name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <type_traits>

namespace amaxscope::emulator {

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};
struct alignas(8) uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};

/// What the kernel did that a kernel may not; the message says which thread of which block, and where.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Settings {
  unsigned workers = 2;    ///< blocks that run at once; races between blocks need two to be seen
  std::uint64_t seed = 0;  ///< of the order in which blocks and threads run; 0: in order of their index
  int multiprocessors = 2;
  /// Takes work that is put on a stream, and says what the launch answers: 0, or CUDA's number of an error.
  /// Empty: it is done at once, and a Failure comes out of the launch.
  std::function<int(void* stream, std::function<void()> work)> enqueue = nullptr;
};
/// Of this process. To be changed only while no kernel runs.
Settings& settings();

int enqueue(void* stream, std::function<void()> work);
bool is_launchable(dim3 grid, dim3 block);
/// Blocks until every thread has left `body`. Throws Failure.
void run_kernel(dim3 grid, dim3 block, const std::function<void()>& body);
void fill(void* target, int value, std::size_t bytes);

// --- what only a kernel calls

/// Who the running thread is.
struct Identity {
  dim3 thread;
  dim3 block;
  dim3 block_size;
  dim3 grid_size;
};
const Identity& current();
unsigned lane();

void barrier(std::source_location where);
enum class WarpOperation { kSync, kShuffle, kMax };
/// source: of a shuffle, the lane to read. The result of kMax is that of all lanes of the mask.
std::uint32_t warp_operation(WarpOperation operation, unsigned mask, std::uint32_t value, unsigned source,
                             std::source_location where);

/// Ends the kernel with a Failure.
[[noreturn]] void fail(const char* what, std::source_location where = std::source_location::current());
void require_aligned(const void* address, std::size_t alignment);

/// The block's object of a key: the same for all its threads, filled with 0xFF at first.
void* shared_object(const void* key, std::size_t bytes);
template <class T>
T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>);
  static const char key = 0;
  return *static_cast<T*>(shared_object(&key, sizeof(T)));
}

}  // namespace amaxscope::emulator

// Threads for the CPU kernels. Owned by whoever computes, together with what is computed on later; kernels
// find it as the stream of a CPU tensor's view, so that no kernel has another interface for it and nothing is
// global. Results have the same bits for any number of threads: pieces of work do not depend on it, and sums
// are made in the order of kernels/cpu/loops.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/tensor.hpp"

namespace amaxscope {

/// Must outlive the views that carry it, and the tensors that were made beside them. Not destroyed by one of
/// its own threads. Thread safety: any number of run() at a time, of which one has the threads, and the
/// others do their parts themselves.
class WorkerPool : public std::enable_shared_from_this<WorkerPool> {
 public:
  /// threads: at least 1, the caller of run() included. Others start with the first run().
  explicit WorkerPool(unsigned threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] unsigned threads() const noexcept { return threads_; }
  /// part(i) for every i below parts, on any of the threads; returns when all are done. Workers look for work
  /// for some microseconds, then sleep until there is some. part must not throw.
  void run(std::size_t parts, const std::function<void(std::size_t)>& part);

  /// What makes kernels use it: give it to the views of CPU tensors.
  [[nodiscard]] Stream stream() noexcept { return {this}; }
  /// The pool that a view of a CPU tensor carries; null: the calling thread does all.
  [[nodiscard]] static WorkerPool* of(const TensorView& view) noexcept;
  /// The same, to be kept; null, too, where no shared_ptr owns it.
  [[nodiscard]] static std::shared_ptr<WorkerPool> shared_of(const TensorView& view) noexcept;

 private:
  void start();
  void share(std::size_t parts, const std::function<void(std::size_t)>& part);
  void work();
  void take_parts();

  unsigned threads_;
  std::vector<std::thread> workers_;
  std::atomic<bool> shared_{false};    ///< a run() has the threads
  std::atomic<std::uint32_t> job_{0};  ///< counts up: there is work, or the end
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::size_t parts_ = 0;
  const std::function<void(std::size_t)>* part_ = nullptr;
};

/// The cores that this process may run on when they are fewer than the machine has, that is when somebody
/// bound it; else 1, because other ranks may be on the same cores.
unsigned bound_cores();

/// The same bytes, computed on by this stream.
TensorView on_stream(const TensorView& view, Stream stream);
/// The same for a CPU view that has no stream of its own; any other as it is.
TensorView with_default_stream(const TensorView& view, Stream stream);

}  // namespace amaxscope

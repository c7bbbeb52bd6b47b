// Cuts a kernel's work for the threads that its tensor carries. Private to kernels/cpu.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/worker_pool.hpp"

namespace amaxscope::cpu {

/// Below this a second thread costs more than it helps.
inline constexpr std::size_t kWorthThreads = std::size_t{1} << 20;
inline constexpr std::size_t kMaxPieces = 256;

/// Stretches of `units` of work: one where there is one thread or little to do, else some for each thread.
class Pieces {
 public:
  Pieces(const TensorView& x, std::size_t units) : pool_(WorkerPool::of(x)), units_(units) {
    if (pool_ == nullptr || pool_->threads() == 1 || x.bytes() < kWorthThreads) return;
    count_ = std::clamp<std::size_t>(std::min<std::size_t>(units, pool_->threads() * 8U), 1, kMaxPieces);
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// action(piece, first unit, end), once for each piece. It must not throw.
  template <class Action>
  void run(Action&& action) const {
    if (count_ == 1) {
      action(std::size_t{0}, std::size_t{0}, units_);
      return;
    }
    pool_->run(count_, [&](std::size_t piece) {
      action(piece, units_ * piece / count_, units_ * (piece + 1) / count_);
    });
  }

 private:
  WorkerPool* pool_;
  std::size_t units_;
  std::size_t count_ = 1;
};

/// run() over elements, in units of `unit` of them: action(piece, first element, number of elements).
template <class Action>
void over_elements(const TensorView& x, std::size_t count, std::size_t unit, Action&& action) {
  Pieces(x, (count + unit - 1) / unit).run([&](std::size_t piece, std::size_t first, std::size_t end) {
    action(piece, first * unit, std::min(end * unit, count) - std::min(first * unit, count));
  });
}

}  // namespace amaxscope::cpu

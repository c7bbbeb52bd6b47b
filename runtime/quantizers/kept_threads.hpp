// Operands that are computed on after whoever made their threads is gone.
#pragma once

#include <memory>
#include <utility>

#include "kernels/worker_pool.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"

namespace amaxscope {

/// The operand itself, with the threads that its tensors name as their stream: the last that refers to it, and
/// to others of these threads, ends them. threads null: as it was given.
inline std::shared_ptr<QuantizedTensor> with_threads_kept(std::shared_ptr<QuantizedTensor> operand,
                                                          std::shared_ptr<WorkerPool> threads) {
  if (operand == nullptr || threads == nullptr) return operand;
  struct Kept {
    std::shared_ptr<WorkerPool> threads;
    std::shared_ptr<QuantizedTensor> operand;
  };
  auto kept = std::make_shared<Kept>(Kept{std::move(threads), std::move(operand)});
  QuantizedTensor* const own = kept->operand.get();
  return {std::move(kept), own};
}

}  // namespace amaxscope

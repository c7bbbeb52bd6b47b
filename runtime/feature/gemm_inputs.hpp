// What a layer hands in with the result of a GEMM, so that a feature can do the GEMM again.
#pragma once

#include <optional>

#include "kernels/gemm.hpp"

namespace amaxscope {

/// Views, valid during the call. Operands and originals are in the order of operands_of(gemm).
struct GemmInputs {
  GemmOperand a;  ///< as it was multiplied
  GemmOperand b;
  /// The tensors the operands were made from, as they were handed to the quantizers: this rank's rows where
  /// codes are gathered. None: it exists in codes only, or the layer has not kept it.
  std::optional<TensorView> original_a = std::nullopt;
  std::optional<TensorView> original_b = std::nullopt;
};

}  // namespace amaxscope

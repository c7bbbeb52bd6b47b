// One GEMM of a layer with what follows it: the debug hook on its result, then the reduction over tp.
#pragma once

#include <string>

#include "megatron/context.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"

namespace amaxscope::megatron {

enum class Reduction {
  kNone,
  kAllReduce,
  kReduceScatter,  ///< this rank keeps its slice of the rows
};

struct Product {
  const LayerContext& context;
  std::string_view layer;
  TensorKind result;         ///< output, dgrad or wgrad
  DType dtype;               ///< of the result
  Reduction reduction;       ///< over context.tp
  DebugQuantizer* debug;     ///< of the result, or null
  const FaultTable* faults;  ///< null unless this layer has one
};

/// inputs.a * inputs.b^T, handed to the debug hook and to planted faults as it leaves the GEMM (a summand,
/// where it is reduced), then reduced. Collective over tp unless reduction is kNone. Under
/// GemmArithmetic::kExact the sums over ranks are in fp64 over the unscaled codes when all ranks decode with
/// the same factor, else over the scaled products; the hook sees a copy of this rank's summand, and only
/// where it modifies does the copy take the summand's place. The originals in inputs are for the debug hook
/// alone. The result is on the host; of operands on a device it is waited for, after the hook and the
/// reduction have had it there (sums of bf16 over ranks are reduced on the host).
Tensor multiply(const Product& product, const GemmInputs& inputs, const TensorMoment& moment);
inline Tensor multiply(const Product& product, const GemmOperand& a, const GemmOperand& b,
                       const TensorMoment& moment) {
  return multiply(product, GemmInputs{.a = a, .b = b}, moment);
}

}  // namespace amaxscope::megatron

// Which operands cuBLASLt multiplies as they are, by its manual ("Narrow Precision Data Types Usage" and the
// tables of cublasLtMatmul). Private to kernels/cuda; host code that asks nothing of a device.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/gemm.hpp"

namespace amaxscope {

struct LtDevice {
  int capability = 0;       ///< 90 for 9.0
  std::size_t version = 0;  ///< of cuBLASLt, as cublasLtGetVersion counts: 120900 for 12.9.0
};

/// How the scales of one factor are given.
enum class LtScaling {
  kNone,            ///< high precision
  kTensor,          ///< FP8 under one scale
  kMxfp8,           ///< E8M0 for 32 elements along the depth, in tiles of 128 x 4
  kNvfp4,           ///< E4M3 for 16 elements along the depth, in tiles; the second level is a factor of all
  kFp8Blocks1d,     ///< f32 for 128 elements along the depth, as quantized
  kFp8Blocks2d,     ///< f32 for 128 x 128 elements, as quantized
  kBlocksOtherwise  ///< none of those, or scales that do not run along the depth
};
LtScaling scaling_of(const GemmOperand& operand);

/// FP8 codes of these devices are multiplied along their rows only.
[[nodiscard]] bool only_along_rows(const LtDevice& device);

/// Why the operands are not multiplied as they are; empty: the manual says that they are.
std::string why_not(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                    const MutableTensorView& out, float beta);

}  // namespace amaxscope

// Factors of a product with scales for blocks of their elements, decoded as cuBLAS' manual describes their
// scales. Internal to tests/fake.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope::fake {

struct ScaledFactor {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_8F_E4M3;
  std::int64_t outer = 0;        ///< m or n
  std::int64_t depth = 0;        ///< k
  bool depth_contiguous = true;  ///< else elements along m or n are neighbours in memory
  cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const void* scales = nullptr;
};

/// Of the array of scales, whole tiles included.
std::size_t scale_bytes(const ScaledFactor& factor);
/// f32, in the order of the data. A scale beyond the matrix that is not zero is a violation.
Tensor decoded(const ScaledFactor& factor);

}  // namespace amaxscope::fake

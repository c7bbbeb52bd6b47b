#include "tests/fake/fake_cublaslt_scales.hpp"

#include <vector>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::fake {

namespace {

std::int64_t up(std::int64_t extent, std::int64_t multiple) {
  return (extent + multiple - 1) / multiple * multiple;
}
bool in_tiles(const ScaledFactor& factor) {
  return factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ||
         factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
}
std::int64_t stretch(const ScaledFactor& factor) {
  if (factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) return 32;
  return factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 ? 16 : 128;
}
std::int64_t stretches(const ScaledFactor& factor) {
  return up(factor.depth, stretch(factor)) / stretch(factor);
}

/// The manual's formulas: of a tile, and within one.
std::int64_t tiled_offset(std::int64_t outer, std::int64_t inner, std::int64_t inner_dim) {
  const std::int64_t tile = (inner / 4 * 4 + outer / 128 * inner_dim) * 128;
  const std::int64_t within = outer % 128;
  return tile + within % 32 * 16 + within / 32 * 4 + inner % 4;
}

float scale_of(const ScaledFactor& factor, std::int64_t outer, std::int64_t inner) {
  if (in_tiles(factor)) {
    const std::uint8_t byte =
        static_cast<const std::uint8_t*>(factor.scales)[tiled_offset(outer, inner, up(stretches(factor), 4))];
    return factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ? decode_e8m0(byte)
                                                                   : decode_fp8<DType::kE4M3>(byte);
  }
  const auto* scales = static_cast<const float*>(factor.scales);
  if (factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return scales[inner * factor.outer + outer];
  return scales[outer / 128 * up(stretches(factor), 4) + inner];
}

float code_of(const ScaledFactor& factor, std::int64_t index) {
  const auto* bytes = static_cast<const std::uint8_t*>(factor.data);
  if (factor.type == CUDA_R_4F_E2M1)
    return decode_e2m1(static_cast<std::uint8_t>(bytes[index / 2] >> (index % 2 * 4) & 0xF));
  return factor.type == CUDA_R_8F_E4M3 ? decode_fp8<DType::kE4M3>(bytes[index])
                                       : decode_fp8<DType::kE5M2>(bytes[index]);
}

void require_zero_padding(const ScaledFactor& factor) {
  const std::int64_t inner_dim = up(stretches(factor), 4);
  for (std::int64_t outer = 0; outer < up(factor.outer, 128); ++outer) {
    for (std::int64_t inner = 0; inner < inner_dim; ++inner) {
      if (outer < factor.outer && inner < stretches(factor)) continue;
      if (static_cast<const std::uint8_t*>(factor.scales)[tiled_offset(outer, inner, inner_dim)] != 0)
        return add_violation("cublasLtMatmul with scales that are not zero beyond the matrix");
    }
  }
}

}  // namespace

std::size_t scale_bytes(const ScaledFactor& factor) {
  const std::int64_t inner = up(stretches(factor), 4);
  if (in_tiles(factor)) return static_cast<std::size_t>(up(factor.outer, 128) * inner);
  if (factor.mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F)
    return sizeof(float) * static_cast<std::size_t>(factor.outer * stretches(factor));
  return sizeof(float) * static_cast<std::size_t>(up(factor.outer, 128) / 128 * inner);
}

Tensor decoded(const ScaledFactor& factor) {
  if (in_tiles(factor)) require_zero_padding(factor);
  Tensor values(DType::kF32, factor.depth_contiguous ? Shape{factor.outer, factor.depth}
                                                     : Shape{factor.depth, factor.outer});
  for (std::int64_t outer = 0; outer < factor.outer; ++outer) {
    for (std::int64_t k = 0; k < factor.depth; ++k) {
      const std::int64_t index =
          factor.depth_contiguous ? outer * factor.depth + k : k * factor.outer + outer;
      values.values<float>()[static_cast<std::size_t>(index)] =
          code_of(factor, index) * scale_of(factor, outer, k / stretch(factor));
    }
  }
  return values;
}

}  // namespace amaxscope::fake

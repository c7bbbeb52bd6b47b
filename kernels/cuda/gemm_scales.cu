// Scales of block-scaled codes in the order in which cuBLASLt reads them, and the factor of a product of
// codes with a second level of scales.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace amaxscope::cuda {

namespace {

constexpr int kTileOuter = 128;
constexpr int kTileInner = 4;
/// A tile is 32 vectors of 16 bytes: vector r has the scales of rows r, r + 32, r + 64 and r + 96.
constexpr int kVectors = kTileOuter * kTileInner / 16;

/// The scales (outer, inner) to (outer, inner + 3), the first in the lowest byte; 0 outside.
__device__ std::uint32_t four_scales(const ScaleBytes& from, std::int64_t outer, std::int64_t inner,
                                     bool words) {
  if (outer >= from.outer) return 0;
  if (words && inner + kTileInner <= from.inner)
    return load(reinterpret_cast<const std::uint32_t*>(from.scales + outer * from.outer_stride + inner));
  std::uint32_t result = 0;
#pragma unroll
  for (int i = 0; i < kTileInner; ++i) {
    if (inner + i < from.inner) {
      const std::uint32_t scale = from.scales[outer * from.outer_stride + (inner + i) * from.inner_stride];
      result |= scale << (8 * i);
    }
  }
  return result;
}

__global__ void __launch_bounds__(kThreads)
    tile_scales_kernel(ScaleBytes from, std::int64_t across, std::int64_t vectors, std::uint8_t* out) {
  const bool words =
      from.inner_stride == 1 && from.outer_stride % kTileInner == 0 && is_aligned(from.scales, kTileInner);
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; v < vectors;
       v += threads) {
    const std::int64_t tile = v / kVectors;
    const std::int64_t outer = tile / across * kTileOuter + v % kVectors;
    const std::int64_t inner = tile % across * kTileInner;
    const auto part = [&](int i) { return four_scales(from, outer + kVectors * i, inner, words); };
    store(reinterpret_cast<uint4*>(out) + v, uint4{part(0), part(1), part(2), part(3)});
  }
}

__global__ void tensor_scale_kernel(const std::uint32_t* amax_a, float factor_a, const std::uint32_t* amax_b,
                                    float factor_b, float beta, float* out) {
  out[0] = (std::bit_cast<float>(*amax_a) * factor_a) * (std::bit_cast<float>(*amax_b) * factor_b);
  out[1] = beta;
}

}  // namespace

LaunchError launch_tile_scales(const ScaleBytes& from, std::uint8_t* out, Stream stream) {
  const std::int64_t across = (from.inner + kTileInner - 1) / kTileInner;
  const std::int64_t vectors = (from.outer + kTileOuter - 1) / kTileOuter * across * kVectors;
  if (vectors == 0) return nullptr;
  const std::int64_t blocks = (vectors + kThreads - 1) / kThreads;
  return launch(tile_scales_kernel, dim3{blocks_for(blocks, 8), 1, 1}, kThreads, stream, from, across,
                vectors, out);
}

LaunchError launch_product_scale(const std::uint32_t* amax_a, float factor_a, const std::uint32_t* amax_b,
                                 float factor_b, float beta, float* out, Stream stream) {
  return launch(tensor_scale_kernel, dim3{1, 1, 1}, 1, stream, amax_a, factor_a, amax_b, factor_b, beta, out);
}

}  // namespace amaxscope::cuda

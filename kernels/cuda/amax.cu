// amax and the scale that is made of it.
#include "kernels/codec/scale.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace amaxscope::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) amax_kernel(const T* x, Runs runs, std::uint32_t* out) {
  std::uint32_t largest = 0;
  for_each_pack<4>(
      x, runs,
      [&](const Pack<T>& pack, std::int64_t) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kCount; ++i) largest = larger(largest, amax_key(pack[i]));
      },
      [&](float value, std::int64_t) { largest = larger(largest, amax_key(value)); });
  struct Shared {
    std::uint32_t of_warp[kThreads / kWarp];
  };
  Shared& block = shared<Shared>();
  largest = largest_of_group<kWarp>(largest);
  if (threadIdx.x % kWarp == 0) block.of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    largest = largest_of_group<kWarp>(threadIdx.x < kThreads / kWarp ? block.of_warp[threadIdx.x] : 0U);
    if (threadIdx.x == 0 && largest != 0) atomicMax(out, largest);
  }
}

__global__ void scale_kernel(const std::uint32_t* amax, ScaleOptions options, float* scale,
                             float* scale_inv) {
  if (threadIdx.x != 0) return;
  const float result = scale_from_amax(*amax, options).scale;
  *scale = result;
  *scale_inv = scale_inverse(result);
}

}  // namespace

LaunchError launch_amax(const Matrix& x, std::uint32_t* out, bool accumulate, Stream stream) {
  if (!accumulate) {
    if (const LaunchError error = launch_zero(out, sizeof *out, stream)) return error;
  }
  if (x.rows * x.cols == 0) return nullptr;
  return with_type(x.type, [&]<class T>(std::type_identity<T>) {
    const Runs runs = runs_of(x);
    return launch(amax_kernel<T>, grid_for_runs<T>(runs.count, runs.runs, 8), kThreads, stream,
                  static_cast<const T*>(x.data), runs, out);
  });
}

LaunchError launch_scale(const std::uint32_t* amax, const ScaleOptions& options, float* scale,
                         float* scale_inv, Stream stream) {
  return launch(scale_kernel, dim3{1, 1, 1}, 32, stream, amax, options, scale, scale_inv);
}

LaunchError launch_zero(void* target, std::size_t bytes, Stream stream) {
  if (bytes == 0) return nullptr;
  return text_of(cudaMemsetAsync(target, 0, bytes, static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace amaxscope::cuda

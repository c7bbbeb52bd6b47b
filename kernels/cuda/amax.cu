// amax and the scale that is made of it.
#include "kernels/codec/scale.hpp"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"

namespace amaxscope::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(const T* x, Runs runs, std::uint32_t* out, Accumulation into) {
  if (skips(into)) return;
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

struct Larger {
  __device__ void operator()(std::uint32_t& own, std::uint32_t other) const { own = larger(own, other); }
};

/// Behind amax_kernel, which has added to out already.
__global__ void finish_amax_kernel(std::uint32_t* out, Accumulation into) {
  if (skips(into)) return;
  leave(*out, out, into, Larger{});
}

__global__ void scale_kernel(const std::uint32_t* amax, ScaleOptions options, float* scale,
                             float* scale_inv) {
  if (threadIdx.x != 0) return;
  const float result = scale_from_amax(*amax, options).scale;
  *scale = result;
  *scale_inv = scale_inverse(result);
}

LaunchError launch_amax_kernel(const Matrix& x, std::uint32_t* out, const Accumulation& into, Stream stream) {
  return with_type(x.type, [&]<class T>(std::type_identity<T>) {
    const Runs runs = runs_of(x);
    return launch(amax_kernel<T>, grid_for_runs<T>(runs.count, runs.runs, 8), kThreads, stream,
                  static_cast<const T*>(x.data), runs, out, into);
  });
}

}  // namespace

LaunchError launch_amax(const Matrix& x, std::uint32_t* out, bool accumulate, Stream stream) {
  if (!accumulate) {
    if (const LaunchError error = launch_zero(out, sizeof *out, stream)) return error;
  }
  if (x.rows * x.cols == 0) return nullptr;
  return launch_amax_kernel(x, out, {}, stream);
}

LaunchError launch_add_amax(const Matrix& x, std::uint32_t* out, const Accumulation& into, Stream stream) {
  if (x.rows * x.cols != 0) {
    if (const LaunchError error = launch_amax_kernel(x, out, into, stream)) return error;
  }
  return launch(finish_amax_kernel, dim3{1, 1, 1}, 32, stream, out, into);
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

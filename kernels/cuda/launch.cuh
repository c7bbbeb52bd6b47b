// Starting kernels, and from a DType to a C++ type. Host code.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "core/half.hpp"
#include "kernels/cuda/launches.hpp"

namespace amaxscope::cuda {

inline constexpr int kThreads = 256;

inline LaunchError text_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class... Parameters, class... Arguments>
LaunchError launch(void (*kernel)(Parameters...), dim3 grid, int threads, Stream stream,
                   Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3{static_cast<unsigned>(threads), 1, 1};
  config.stream = static_cast<cudaStream_t>(stream.handle);
  return text_of(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

/// Blocks that fill the device `per_multiprocessor` times over, but no more than there is work for. 0: the
/// device did not answer, which the launch will say.
inline unsigned blocks_for(std::int64_t work, int per_multiprocessor, std::int64_t at_most = 1 << 30) {
  int device = 0;
  int multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 0;
  }
  std::int64_t blocks = std::int64_t{multiprocessors} * per_multiprocessor;
  blocks = blocks < at_most ? blocks : at_most;
  return static_cast<unsigned>(work < blocks ? (work < 1 ? 1 : work) : blocks);
}

/// A grid for for_each_pack (runs.cuh).
template <class T>
dim3 grid_for_runs(std::int64_t count, std::int64_t runs, int per_multiprocessor,
                   std::int64_t at_most = 1 << 30) {
  constexpr std::int64_t kPerBlock = kThreads * (16 / static_cast<std::int64_t>(sizeof(T)));
  const std::int64_t across = (count + kPerBlock - 1) / kPerBlock;
  const unsigned x = blocks_for(across, per_multiprocessor, at_most);
  if (x == 0) return {0, 1, 1};
  const unsigned all = blocks_for(across * runs, per_multiprocessor, at_most);
  const std::int64_t y = all / x;
  return {x, static_cast<unsigned>(y < 1 ? 1 : (y > 65535 ? 65535 : y)), 1};
}

/// action(std::type_identity<T>{}); the caller has checked that the type is one of the three.
template <class Action>
LaunchError with_type(DType type, Action&& action) {
  if (type == DType::kF32) return action(std::type_identity<float>{});
  if (type == DType::kF16) return action(std::type_identity<F16>{});
  return action(std::type_identity<BF16>{});
}
/// action(std::integral_constant<DType, F>{}) for e4m3 or e5m2.
template <class Action>
LaunchError with_format(DType format, Action&& action) {
  if (format == DType::kE4M3) return action(std::integral_constant<DType, DType::kE4M3>{});
  return action(std::integral_constant<DType, DType::kE5M2>{});
}

}  // namespace amaxscope::cuda

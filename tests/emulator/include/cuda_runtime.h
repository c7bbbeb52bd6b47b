// Stands in for the CUDA toolkit's header of this name where kernels are compiled for the emulator: the words
// of CUDA C++ that kernels/cuda uses, and the few calls its host side makes. Anything else does not compile.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <tuple>

#include "tests/emulator/emulator.hpp"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

using amaxscope::emulator::dim3;
using amaxscope::emulator::uint2;
using amaxscope::emulator::uint4;

// --- device

/// threadIdx.x and its like: what they are is asked of the running thread each time.
template <dim3 amaxscope::emulator::Identity::*kWhat, unsigned dim3::*kAxis>
struct EmulatedCoordinate {
  operator unsigned() const { return amaxscope::emulator::current().*kWhat.*kAxis; }  // NOLINT
};
template <dim3 amaxscope::emulator::Identity::*kWhat>
struct EmulatedCoordinates {
  EmulatedCoordinate<kWhat, &dim3::x> x;
  EmulatedCoordinate<kWhat, &dim3::y> y;
  EmulatedCoordinate<kWhat, &dim3::z> z;
};
inline constexpr EmulatedCoordinates<&amaxscope::emulator::Identity::thread> threadIdx{};
inline constexpr EmulatedCoordinates<&amaxscope::emulator::Identity::block> blockIdx{};
inline constexpr EmulatedCoordinates<&amaxscope::emulator::Identity::block_size> blockDim{};
inline constexpr EmulatedCoordinates<&amaxscope::emulator::Identity::grid_size> gridDim{};

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  amaxscope::emulator::barrier(where);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       std::source_location where = std::source_location::current()) {
  amaxscope::emulator::warp_operation(amaxscope::emulator::WarpOperation::kSync, mask, 0, 0, where);
}
inline std::uint32_t __shfl_sync(unsigned mask, std::uint32_t value, int source,
                                 std::source_location where = std::source_location::current()) {
  return amaxscope::emulator::warp_operation(amaxscope::emulator::WarpOperation::kShuffle, mask, value,
                                             static_cast<unsigned>(source), where);
}
inline std::uint32_t __shfl_xor_sync(unsigned mask, std::uint32_t value, int lanes,
                                     std::source_location where = std::source_location::current()) {
  return amaxscope::emulator::warp_operation(amaxscope::emulator::WarpOperation::kShuffle, mask, value,
                                             amaxscope::emulator::lane() ^ static_cast<unsigned>(lanes),
                                             where);
}
inline std::uint32_t __reduce_max_sync(unsigned mask, std::uint32_t value,
                                       std::source_location where = std::source_location::current()) {
  return amaxscope::emulator::warp_operation(amaxscope::emulator::WarpOperation::kMax, mask, value, 0, where);
}
inline std::uint32_t atomicMax(std::uint32_t* target, std::uint32_t value) {
  std::uint32_t old = __atomic_load_n(target, __ATOMIC_RELAXED);
  while (old < value &&
         !__atomic_compare_exchange_n(target, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// --- host

using cudaStream_t = struct CUstream_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

inline const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorInvalidConfiguration) return "invalid configuration argument";
  return error == cudaErrorInvalidValue ? "invalid argument" : "an error that was injected";
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = amaxscope::emulator::settings().multiprocessors;
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  if (target == nullptr && bytes != 0) return cudaErrorInvalidValue;
  return static_cast<cudaError_t>(
      amaxscope::emulator::enqueue(stream, [=] { amaxscope::emulator::fill(target, value, bytes); }));
}

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

/// Arguments are converted to the kernel's parameters and copied, as for a device.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  namespace emulator = amaxscope::emulator;
  if (!emulator::is_launchable(config->gridDim, config->blockDim) || config->dynamicSmemBytes != 0) {
    return cudaErrorInvalidConfiguration;
  }
  std::tuple<Parameters...> copies(static_cast<Parameters>(arguments)...);
  return static_cast<cudaError_t>(
      emulator::enqueue(config->stream, [grid = config->gridDim, block = config->blockDim, kernel, copies] {
        emulator::run_kernel(grid, block, [&] { std::apply(kernel, copies); });
      }));
}

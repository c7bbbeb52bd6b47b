// The memory of a real device, and a main that says when there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "tests/kernels/cuda/memory.hpp"

namespace amaxscope::test {

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc");
  return memory;
}
void device_free(void* memory) { cudaFree(memory); }
void copy_to_device(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
}
void copy_from_device(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaDeviceSynchronize(), "kernels");
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}
void set_order(unsigned) {}
void set_multiprocessors(int) {}

}  // namespace amaxscope::test

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  const amaxscope::CudaPresence presence = amaxscope::cuda_presence();
  if (presence.devices == 0) {
    constexpr int kSkipped = 77;
    std::printf("SKIPPED: no CUDA device: %s\n", presence.why_none.c_str());
    return kSkipped;
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) std::printf("on %s\n", properties.name);
  return RUN_ALL_TESTS();
}

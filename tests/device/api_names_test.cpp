#include "tests/device/api_names.hpp"

#include <gtest/gtest.h>

namespace amaxscope::testing {
namespace {

TEST(ApiNames, WhatMayMakeTheHostWait) {
  for (const char* call :
       {"cudaStreamSynchronize_v3020", "cuStreamSynchronize", "cudaDeviceSynchronize_v3020",
        "cuCtxSynchronize", "cudaEventSynchronize_v3020", "cuEventSynchronize", "cudaMemcpy_v3020",
        "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2", "cudaMalloc_v3020", "cuMemAlloc_v2", "cudaFree_v3020",
        "cuMemFree_v2", "cudaMallocHost_v3020", "cuMemHostAlloc", "cudaMemset_v3020"}) {
    EXPECT_TRUE(may_wait(call)) << call;
  }
  for (const char* call :
       {"cudaMemcpyAsync_v3020", "cuMemcpyDtoHAsync_v2", "cudaMallocFromPoolAsync_v11020",
        "cuMemAllocFromPoolAsync", "cudaFreeAsync_v11020", "cuMemFreeAsync", "cudaMemsetAsync_v3020",
        "cuMemsetD8Async", "cudaLaunchKernelExC_v11060", "cuLaunchKernelEx", "cudaEventRecord_v3020",
        "cuStreamWaitEvent", "cudaStreamIsCapturing_v10000", "cudaGetDevice_v3020", "cuMemGetInfo_v2"}) {
    EXPECT_FALSE(may_wait(call)) << call;
  }
}

}  // namespace
}  // namespace amaxscope::testing

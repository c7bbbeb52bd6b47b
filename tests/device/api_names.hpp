// What a call of the CUDA runtime or driver does to the host, told by its name.
#pragma once

#include <string_view>

namespace amaxscope::testing {

/// Makes the host wait for the device, or may: synchronisation, copies that are not asynchronous, allocation
/// outside of a stream's order. Names as CUPTI has them: "cudaMalloc_v3020", "cuMemcpyDtoH_v2".
constexpr bool may_wait(std::string_view call) {
  const auto has = [&](std::string_view text) { return call.find(text) != std::string_view::npos; };
  if (has("Synchronize")) return true;
  if (has("Async") || has("GetInfo")) return false;
  return call.starts_with("cudaMemcpy") || call.starts_with("cuMemcpy") || call.starts_with("cudaMemset") ||
         call.starts_with("cuMemset") || call.starts_with("cudaMalloc") || call.starts_with("cuMemAlloc") ||
         call.starts_with("cudaFree") || call.starts_with("cuMemFree") || call.starts_with("cudaHostAlloc") ||
         call.starts_with("cuMemHostAlloc");
}

}  // namespace amaxscope::testing

// libamaxscope_cuda.so
#include "capi/amaxscope_cuda.h"

#include <cstdio>
#include <new>

#include "capi/calls.hpp"
#include "capi/resources.hpp"
#include "core/cuda/cuda_device.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#ifdef AMAXSCOPE_HAS_CUBLASLT
#include "kernels/cuda/cublaslt_gemm.hpp"
#endif

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstCudaOptions = sizeof(amaxscope_cuda_options);

std::optional<DeviceAllocator> allocator_of(const amaxscope_cuda_options& given) {
  AMAXSCOPE_CHECK((given.allocate == nullptr) == (given.free == nullptr), ErrorCode::kUsage,
                  "options.allocate and options.free go together: give both, or neither");
  if (given.allocate == nullptr) return std::nullopt;
  return DeviceAllocator{
      .allocate =
          [given](std::size_t bytes, Stream stream) {
            void* const memory = given.allocate(given.allocator_context, bytes, given.device, stream.handle);
            if (memory == nullptr) throw std::bad_alloc();
            return memory;
          },
      .free =
          [given](void* memory, std::size_t bytes, Stream stream) {
            given.free(given.allocator_context, memory, bytes, given.device, stream.handle);
          }};
}

CudaBackendOptions backend_options(const amaxscope_cuda_options& given) {
  const CudaPresence presence = cuda_presence();
  AMAXSCOPE_CHECK(presence.devices > 0, ErrorCode::kUsage, "there is no CUDA device: {}", presence.why_none);
  AMAXSCOPE_CHECK(given.device >= 0 && given.device < presence.devices, ErrorCode::kUsage,
                  "options.device is {}; this process has the devices 0 to {}", given.device,
                  presence.devices - 1);
  CudaBackendOptions result{
      .device = given.device,
      .unsupported = enumerator<UnsupportedGemm>(given.unsupported, AMAXSCOPE_REFUSE, "options.unsupported"),
      .allocator = allocator_of(given)};
  static_assert(static_cast<int>(AMAXSCOPE_REFUSE) == static_cast<int>(UnsupportedGemm::kRefuse));
#ifdef AMAXSCOPE_HAS_CUBLASLT
  result.gemm = make_cublaslt_gemm(given.device);
#endif
  result.warn = [given](const std::string& text) {
    if (given.warn != nullptr) {
      given.warn(given.warn_context, text.c_str());
    } else {
      std::fprintf(stderr, "amaxscope: warning: %s\n", text.c_str());
    }
  };
  return result;
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_device_from_cuda(const amaxscope_cuda_options* options,
                                            amaxscope_device** device) {
  return capi::call([&] {
    capi::require_same_version("libamaxscope_cuda.so");
    amaxscope_device*& result = capi::required(device, "device");
    const amaxscope_cuda_options given = capi::taken(options, capi::kFirstCudaOptions, "options");
    auto made = std::make_unique<amaxscope_device>();
    made->backend = make_cuda_backend(capi::backend_options(given));
    result = made.release();
  });
}

}  // extern "C"

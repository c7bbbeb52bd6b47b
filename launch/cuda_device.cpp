// A CUDA device for `amaxscope train --device cuda`: kernels, cuBLASLt and NCCL behind
// launch/compute_device.hpp. This file is no part of amaxscope::launch: libamaxscope_train_cuda.so has it,
// and tests that link imitations.
#include <chrono>
#include <thread>
#include <utility>

#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_handles.hpp"
#include "core/version.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "launch/compute_device.hpp"

namespace amaxscope::launch {

namespace {

class CudaComputeDevice final : public ComputeDevice {
 public:
  explicit CudaComputeDevice(ComputeDeviceOptions options) : ordinal_(options.ordinal) {
    const CudaDeviceScope scope(ordinal_);
    backend_ =
        make_cuda_backend({.device = ordinal_,
                           .gemm = make_cublaslt_gemm(ordinal_),
                           .unsupported = options.refuse_unsupported_products ? UnsupportedGemm::kRefuse
                                                                              : UnsupportedGemm::kDequantize,
                           .warn = std::move(options.warn)});
    stream_ = CudaStream::create();
  }
  CudaComputeDevice(const CudaComputeDevice&) = delete;
  CudaComputeDevice& operator=(const CudaComputeDevice&) = delete;
  /// Lets what is on the stream end, as memory that is given back; a collective that hangs does not end.
  ~CudaComputeDevice() override {
    const auto start = std::chrono::steady_clock::now();
    try {
      while (!stream_.idle() && std::chrono::steady_clock::now() - start < kTeardown)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    } catch (...) {  // what failed on it has been said
    }
  }

  [[nodiscard]] Stream stream() const noexcept override { return {stream_.get(), backend_.get()}; }
  [[nodiscard]] std::unique_ptr<Communicator> connect(Communicator& bootstrap,
                                                      std::chrono::milliseconds deadline) override {
    return make_nccl_communicator(bootstrap, {.device = ordinal_, .deadline = deadline});
  }

 private:
  static constexpr std::chrono::seconds kTeardown{5};

  int ordinal_;
  std::unique_ptr<DeviceBackend> backend_;
  CudaStream stream_;  // ends before the memory that its work was on
};

DevicesSeen devices() {
  CudaPresence presence = cuda_presence();
  return {presence.devices, std::move(presence.why_none)};
}

std::unique_ptr<ComputeDevice> open(ComputeDeviceOptions options) {
  return std::make_unique<CudaComputeDevice>(std::move(options));
}

}  // namespace

extern "C" {
extern const ComputeModule amaxscope_compute_module;
const ComputeModule amaxscope_compute_module = {kVersion, devices, open};
}

}  // namespace amaxscope::launch

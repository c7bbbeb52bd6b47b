#include "kernels/cuda/cuda_backend.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/cuda/cuda_host_staging.hpp"
#include "core/error.hpp"
#include "kernels/cuda/cuda_kernels.hpp"

namespace amaxscope {

namespace {

cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

/// Memory that was given back stays here for the next tensor.
class MemoryPool {
 public:
  explicit MemoryPool(int device) {
    const CudaDeviceScope scope(device);
    int supported = 0;
    check_cuda(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device),
               "cudaDeviceGetAttribute");
    AMAXSCOPE_CHECK(supported != 0, ErrorCode::kTensor, "cuda:{} has no memory pools", device);
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    check_cuda(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    std::uint64_t keep = UINT64_MAX;
    const cudaError_t status = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
    if (status != cudaSuccess) static_cast<void>(cudaMemPoolDestroy(pool_));
    check_cuda(status, "cudaMemPoolSetAttribute");
  }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() { static_cast<void>(cudaMemPoolDestroy(pool_)); }
  [[nodiscard]] cudaMemPool_t get() const noexcept { return pool_; }

 private:
  cudaMemPool_t pool_ = nullptr;
};

class CudaBackend final : public DeviceBackend {
 public:
  explicit CudaBackend(CudaBackendOptions options)
      : device_(options.device),
        allocator_(std::move(options.allocator)),
        staging_(make_cuda_host_staging(options.device)),
        kernels_(std::move(options)) {
    if (!allocator_) pool_.emplace(device_);
  }

  [[nodiscard]] Device device() const noexcept override { return {DeviceKind::kCuda, device_}; }
  [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override {
    const CudaDeviceScope scope(device_);
    if (allocator_) {
      void* const memory = allocator_->allocate(bytes, stream);
      of_program_.emplace(memory, bytes);
      return memory;
    }
    const CaptureId capture = capture_of(stream);
    if (capture == kNoCapture) free_deferred();
    void* memory = nullptr;
    check_cuda(cudaMallocFromPoolAsync(&memory, bytes, pool_->get(), handle_of(stream)),
               fmt::format("cudaMallocFromPoolAsync of {} bytes", bytes));
    if (capture != kNoCapture) of_graphs_.emplace(memory, capture);
    return memory;
  }
  void free(void* memory, Stream stream) noexcept override {
    if (allocator_) {
      const auto found = of_program_.extract(memory);
      allocator_->free(memory, found.mapped(), stream);
      return;
    }
    CaptureId capture = kNoCapture;
    try {
      capture = capture_of(stream);
      // Of several at one address all but the last are of graphs that are gone.
      if (const auto found = of_graphs_.lower_bound(memory);
          found != of_graphs_.end() && found->first == memory) {
        const bool recorded = found->second == capture;
        of_graphs_.erase(found);
        if (!recorded) return;  // its graph has it from now on
      } else if (capture != kNoCapture) {
        deferred_.push_back({memory, stream});
        return;
      }
    } catch (...) {  // an error of CUDA, which freeing will meet again
    }
    static_cast<void>(cudaFreeAsync(memory, handle_of(stream)));
    if (capture == kNoCapture) free_deferred();
  }
  [[nodiscard]] bool capturing(Stream stream) const override { return capture_of(stream) != kNoCapture; }
  void copy(const MutableTensorView& to, const TensorView& from) override {
    require_alike(to, from);
    const CudaDeviceScope scope(device_);
    check_cuda(
        cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToDevice, handle_of(to.stream())),
        "cudaMemcpyAsync on the device");
  }
  void zero(const MutableTensorView& tensor) override {
    require_alike(tensor, tensor);
    const CudaDeviceScope scope(device_);
    check_cuda(cudaMemsetAsync(tensor.data(), 0, tensor.bytes(), handle_of(tensor.stream())),
               "cudaMemsetAsync");
  }
  [[nodiscard]] HostStaging& staging() noexcept override { return *staging_; }
  [[nodiscard]] DeviceKernels& kernels() noexcept override { return kernels_; }

 private:
  using CaptureId = unsigned long long;
  static constexpr CaptureId kNoCapture = 0;
  struct Deferred {
    void* memory;
    Stream stream;
  };

  /// Of the capture that the stream is in.
  static CaptureId capture_of(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CaptureId id = kNoCapture;
    check_cuda(cudaStreamGetCaptureInfo(handle_of(stream), &status, &id), "cudaStreamGetCaptureInfo");
    return status == cudaStreamCaptureStatusNone ? kNoCapture : id;
  }
  void free_deferred() noexcept {
    for (const Deferred& it : std::exchange(deferred_, {}))
      static_cast<void>(cudaFreeAsync(it.memory, handle_of(it.stream)));
  }

  void require_alike(const TensorView& to, const TensorView& from) const {
    AMAXSCOPE_CHECK(
        to.contiguous() && from.contiguous() && to.bytes() == from.bytes() && to.device() == device() &&
            from.device() == device() && to.stream() == from.stream(),
        ErrorCode::kTensor,
        "copy of {} bytes on {} to {} bytes on {}; wanted contiguous tensors of one size on one stream "
        "of {}",
        from.bytes(), to_string(from.device()), to.bytes(), to_string(to.device()), to_string(device()));
  }

  int device_;
  std::optional<DeviceAllocator> allocator_;
  std::optional<MemoryPool> pool_;           ///< without an allocator
  std::map<void*, std::size_t> of_program_;  ///< what the allocator gave, and how much of it
  std::shared_ptr<HostStaging> staging_;
  CudaKernels kernels_;
  std::multimap<void*, CaptureId> of_graphs_;  ///< what was allocated in captures and not given back
  std::vector<Deferred> deferred_;             ///< given back in a capture in which it was not allocated
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cuda_backend(CudaBackendOptions options) {
  const CudaDeviceScope exists(options.device);
  return std::make_unique<CudaBackend>(std::move(options));
}

}  // namespace amaxscope

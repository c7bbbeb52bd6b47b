#include "core/cuda/cuda_host_staging.hpp"

#include <algorithm>
#include <vector>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/cuda/cuda_handles.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kSmallest =
    std::size_t{16} * 1024;  ///< small tensors share a size, to be used by others

struct Block {
  PinnedBuffer memory;
  CudaEvent stored;  ///< recorded behind the copy that reads the memory
};

/// Blocks that no copy has; the device may still read from some.
class Pool {
 public:
  explicit Pool(int device) : device_(device) {}
  [[nodiscard]] int device() const noexcept { return device_; }

  std::unique_ptr<Block> take(std::size_t bytes) {
    const CudaDeviceScope scope(device_);
    const auto usable = [&](const auto& block) {
      return block->memory.bytes() >= bytes && block->stored.done();
    };
    const auto found = std::ranges::find_if(free_, usable);
    if (found != free_.end()) {
      std::unique_ptr<Block> block = std::move(*found);
      free_.erase(found);
      return block;
    }
    std::size_t rounded = kSmallest;
    while (rounded < bytes) rounded *= 2;
    auto block = std::make_unique<Block>();
    block->memory = PinnedBuffer(rounded);
    block->stored = CudaEvent::create();
    return block;
  }
  void give_back(std::unique_ptr<Block> block) { free_.push_back(std::move(block)); }

 private:
  int device_;
  std::vector<std::unique_ptr<Block>> free_;
};

cudaStream_t stream_of(const TensorView& view) { return static_cast<cudaStream_t>(view.stream().handle); }

class CudaHostCopy final : public HostCopy {
 public:
  CudaHostCopy(std::shared_ptr<Pool> pool, const TensorView& like)
      : pool_(std::move(pool)),
        dtype_(like.dtype()),
        shape_(like.shape()),
        block_(pool_->take(like.bytes())) {}
  ~CudaHostCopy() override { pool_->give_back(std::move(block_)); }

  [[nodiscard]] MutableTensorView host() const override { return {block_->memory.data(), dtype_, shape_}; }

  void fetch(const TensorView& from) override {
    require_alike(from);
    if (from.bytes() == 0) return;
    const CudaDeviceScope scope(pool_->device());
    check_cuda(cudaMemcpyAsync(block_->memory.data(), from.data(), from.bytes(), cudaMemcpyDeviceToHost,
                               stream_of(from)),
               "cudaMemcpyAsync to the host");
    block_->stored.record(stream_of(from));
    check_cuda(cudaEventSynchronize(block_->stored.get()), "cudaEventSynchronize");
  }

  void store(const MutableTensorView& to) override {
    require_alike(to);
    if (to.bytes() == 0) return;
    const CudaDeviceScope scope(pool_->device());
    check_cuda(
        cudaMemcpyAsync(to.data(), block_->memory.data(), to.bytes(), cudaMemcpyHostToDevice, stream_of(to)),
        "cudaMemcpyAsync to the device");
    block_->stored.record(stream_of(to));
  }

 private:
  void require_alike(const TensorView& view) const {
    const Device device{DeviceKind::kCuda, pool_->device()};
    AMAXSCOPE_CHECK(
        view.device() == device && view.contiguous() && view.dtype() == dtype_ && view.shape() == shape_,
        ErrorCode::kTensor, "staging for {} {} on {}: got {} {} on {} with row stride {}", to_string(dtype_),
        to_string(shape_), to_string(device), to_string(view.dtype()), to_string(view.shape()),
        to_string(view.device()), view.row_stride());
  }

  std::shared_ptr<Pool> pool_;
  DType dtype_;
  Shape shape_;
  std::unique_ptr<Block> block_;
};

class CudaHostStaging final : public HostStaging {
 public:
  explicit CudaHostStaging(int device) : pool_(std::make_shared<Pool>(device)) {}
  [[nodiscard]] Device device() const noexcept override { return {DeviceKind::kCuda, pool_->device()}; }
  [[nodiscard]] std::unique_ptr<HostCopy> room_for(const TensorView& tensor) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream_of(tensor), &status), "cudaStreamIsCapturing");
    AMAXSCOPE_CHECK(
        status == cudaStreamCaptureStatusNone, ErrorCode::kUsage,
        "a copy of a {} tensor of shape {} between {} and the host, on a stream that is being captured "
        "into a CUDA graph: replays would not bring the host new numbers, nor take any from it",
        to_string(tensor.dtype()), to_string(tensor.shape()), to_string(tensor.device()));
    return std::make_unique<CudaHostCopy>(pool_, tensor);
  }

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace

std::shared_ptr<HostStaging> make_cuda_host_staging(int device) {
  const CudaDeviceScope exists(device);
  return std::make_shared<CudaHostStaging>(device);
}

}  // namespace amaxscope

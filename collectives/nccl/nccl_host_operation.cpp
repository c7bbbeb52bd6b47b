#include "collectives/nccl/nccl_host_operation.hpp"

#include <algorithm>
#include <utility>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kAlignment = 256;  ///< as NCCL likes buffers

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

NcclHostOperation::NcclHostOperation(std::shared_ptr<NcclGroup> group, std::string_view name, Sizes sizes)
    : group_(std::move(group)), name_(name), sizes_(sizes), out_at_(sizes.in_place ? 0 : aligned(sizes.in)) {
  staging_ = group_->take_staging(std::max(sizes.in, out_at_ + sizes.out));
}

NcclHostOperation::~NcclHostOperation() {
  if (started_ && !done_) {
    group_->abandon(std::move(staging_));
  } else {
    group_->give_back(std::move(staging_));
  }
}

std::span<std::byte> NcclHostOperation::in() const { return {staging_->host.data(), sizes_.in}; }

std::span<const std::byte> NcclHostOperation::out() const {
  return {staging_->host.data() + out_at_, sizes_.out};
}

void NcclHostOperation::start(const Call& call) {
  const CudaDeviceScope scope(group_->device());
  const cudaStream_t stream = group_->own_stream();
  std::byte* const device = staging_->device.data();
  const auto copy_in = [&] {
    if (sizes_.in == 0) return;
    started_ = true;
    check_cuda(cudaMemcpyAsync(device, staging_->host.data(), sizes_.in, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync to the device");
  };
  group_->enqueue(stream, name_, copy_in, [&](ncclComm_t comm) {
    started_ = true;
    return call(comm, device, device + out_at_, stream);
  });
}

bool NcclHostOperation::test() {
  if (done_) return true;
  const CudaDeviceScope scope(group_->device());
  if (!on_its_way_back_) {
    // Only now is NCCL's kernel on the stream, and what is enqueued behind it really comes behind it.
    if (!group_->ready()) return false;
    const cudaStream_t stream = group_->own_stream();
    if (sizes_.out != 0) {
      check_cuda(cudaMemcpyAsync(staging_->host.data() + out_at_, staging_->device.data() + out_at_,
                                 sizes_.out, cudaMemcpyDeviceToHost, stream),
                 "cudaMemcpyAsync to the host");
    }
    staging_->back.record(stream);
    on_its_way_back_ = true;
  }
  if (!staging_->back.done()) {
    // An error of another rank or of the network is seen here only; the kernel would wait for ever.
    static_cast<void>(group_->ready());
    return false;
  }
  // A kernel that NCCL has given up also comes to its end, with no result.
  static_cast<void>(group_->ready());
  done_ = true;
  return true;
}

void NcclHostOperation::wait() {
  const std::chrono::milliseconds deadline = group_->limits().deadline;
  if (poll_until(deadline, [&] { return test(); })) return;
  group_->abort();
  throw Error(ErrorCode::kDeadline,
              fmt::format("{} did not complete within {} ms: another rank has not come to it", name_,
                          deadline.count()));
}

}  // namespace amaxscope

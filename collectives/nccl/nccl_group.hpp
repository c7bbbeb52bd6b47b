// An NCCL communicator of our own with the lifetime that this library needs: nothing here waits without a
// bound.
//
// The communicator does not block: a call may answer "in progress" (NCCL connects ranks when they first
// talk), and then nothing may be called on it, and nothing may be enqueued behind it, until NCCL says that it
// has enqueued its kernel. Operations are ordered by a chain over streams: each runs after the one before, on
// whichever stream that was. Used by the thread that uses the communicator. Internal to the NCCL backend.
#pragma once

#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda/cuda_handles.hpp"

namespace amaxscope {

/// Memory through which host tensors travel.
struct NcclStaging {
  PinnedBuffer host;
  DeviceBuffer device;
  CudaEvent back;  ///< recorded when the result is in `host`
};

/// Calls the predicate until it is true (then true) or the time is over, sleeping longer the longer it takes.
bool poll_until(std::chrono::milliseconds limit, const std::function<bool()>& predicate);

class NcclGroup {
 public:
  struct Limits {
    std::chrono::milliseconds deadline;  ///< of everything that waits for other ranks
    std::chrono::milliseconds teardown;  ///< how long the destructor lets ranks end together
  };

  /// Takes the communicator over, which may still be in progress; also when this throws.
  NcclGroup(ncclComm_t comm, int device, Limits limits);
  /// Lets what is under way end and the ranks part within the teardown limit, and aborts otherwise.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const Limits& limits() const noexcept { return limits_; }
  [[nodiscard]] cudaStream_t own_stream() const noexcept { return stream_.get(); }
  /// Throws Error(kInternal) after an abort.
  [[nodiscard]] ncclComm_t comm() const;

  /// False while NCCL is in progress. Throws NcclError, and aborts, for what has gone wrong since the last
  /// call.
  bool ready();
  /// Throws Error(kDeadline), and aborts, when NCCL stays in progress.
  void wait_ready(std::string_view operation);

  /// Enqueues on the stream, after everything that was enqueued on this communicator before: `before` (may be
  /// empty), then the NCCL calls of `call`. Waits for ready() first, not afterwards.
  void enqueue(cudaStream_t stream, std::string_view operation, const std::function<void()>& before,
               const std::function<ncclResult_t(ncclComm_t)>& call);
  /// The same into the graph that the stream is being captured into. The stream must outlive this group.
  /// Throws Error(kUsage) when the last operation was on another stream: a capture takes no event from
  /// outside.
  void enqueue_captured(cudaStream_t stream, std::string_view operation,
                        const std::function<ncclResult_t(ncclComm_t)>& call);
  /// The stream of the last enqueue() may be destroyed from now on. For one that is ready().
  void leave_stream();

  /// Ends everything that is under way on this rank, in error. Nothing can be called afterwards.
  void abort() noexcept;

  [[nodiscard]] std::unique_ptr<NcclStaging> take_staging(std::size_t bytes);
  /// For staging that nothing on the device uses any more.
  void give_back(std::unique_ptr<NcclStaging> staging) noexcept;
  /// For staging that may still be written to: kept until the device is done with it.
  void abandon(std::unique_ptr<NcclStaging> staging) noexcept;

 private:
  [[nodiscard]] bool quiet() noexcept;
  /// False when it had to abort.
  [[nodiscard]] bool part() noexcept;

  ncclComm_t comm_;
  int device_;
  Limits limits_;
  CudaStream stream_;
  CudaEvent order_;  ///< recorded after the last operation on a stream that is not ours
  cudaStream_t last_stream_ = nullptr;
  cudaStream_t captured_stream_ =
      nullptr;             ///< where graphs may be launched with our operations, unknown to us
  bool enqueued_ = false;  ///< anything at all
  bool order_recorded_ = false;
  std::vector<std::unique_ptr<NcclStaging>> free_;
  std::vector<std::unique_ptr<NcclStaging>> abandoned_;
};

}  // namespace amaxscope

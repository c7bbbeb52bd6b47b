#include "collectives/nccl/nccl_group.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "collectives/nccl/nccl_api.hpp"
#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kSpins = 200;
constexpr auto kPause = microseconds(20);
constexpr auto kLongPause = milliseconds(1);
constexpr auto kLongWait = milliseconds(200);
/// Small tensors share a size, so that their staging can be used again by others.
constexpr std::size_t kSmallestStaging = std::size_t{16} * 1024;

/// What a device that does not come to rest may still write to; a process can only leave it behind. Named so
/// that a leak checker can be told of it (tests/support/lsan.supp).
template <class T>
[[gnu::noinline]] void keep_until_exit(T object) {
  static_cast<void>(new T(std::move(object)));
}

}  // namespace

bool poll_until(milliseconds limit, const std::function<bool()>& predicate) {
  const auto start = std::chrono::steady_clock::now();
  for (int tests = 0; !predicate(); ++tests) {
    if (tests < kSpins) {
      std::this_thread::yield();
      continue;
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > limit) return predicate();  // this thread itself may have been away for long
    if (waited > kLongWait) {
      std::this_thread::sleep_for(kLongPause);
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return true;
}

NcclGroup::NcclGroup(ncclComm_t comm, int device, Limits limits)
    : comm_(comm), device_(device), limits_(limits) {
  try {
    const CudaDeviceScope scope(device_);
    stream_ = CudaStream::create();
    order_ = CudaEvent::create();
  } catch (...) {
    abort();
    throw;
  }
}

NcclGroup::~NcclGroup() {
  bool parted = false;
  bool at_rest = false;
  try {
    const CudaDeviceScope scope(device_);
    if (comm_ != nullptr && captured_stream_ != nullptr) order_.record(captured_stream_);
    parted = comm_ != nullptr && part();
    // An abort ends the kernels, and then the streams come to rest.
    at_rest = poll_until(limits_.teardown, [&] { return quiet(); });
  } catch (...) {
    abort();  // the CUDA runtime is gone, as at the end of a process
  }
  if (!at_rest) {
    keep_until_exit(std::move(stream_));
    keep_until_exit(std::move(order_));
  }
  // Freeing waits for the whole device, on which the trainer's own collectives may hang as well when ours
  // did.
  if (parted && at_rest) return;
  for (auto* kept : {&free_, &abandoned_}) {
    if (!kept->empty()) keep_until_exit(std::move(*kept));
  }
}

bool NcclGroup::quiet() noexcept {
  try {
    return (stream_.get() == nullptr || stream_.idle()) && (order_.get() == nullptr || order_.done());
  } catch (...) {
    return false;
  }
}

bool NcclGroup::part() noexcept {
  const auto end = std::chrono::steady_clock::now() + limits_.teardown;
  const auto left = [&] {
    return std::max(milliseconds(0),
                    std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now()));
  };
  try {
    const auto at_rest = [&] { return comm_ == nullptr || (ready() && quiet()); };
    if (poll_until(limits_.teardown, at_rest) && comm_ != nullptr) {
      check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize");
      if (poll_until(left(), [&] { return ready(); })) {
        // Does not wait: the ranks have parted.
        return ncclCommDestroy(std::exchange(comm_, nullptr)) == ncclSuccess;
      }
    }
  } catch (...) {  // and then it is aborted
  }
  abort();
  return false;
}

ncclComm_t NcclGroup::comm() const {
  AMAXSCOPE_CHECK(comm_ != nullptr, ErrorCode::kInternal,
                  "this NCCL communicator has failed before and was aborted; it cannot go on");
  return comm_;
}

bool NcclGroup::ready() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm(), &state);
  const ncclResult_t worst = asked == ncclSuccess ? state : asked;
  if (worst == ncclInProgress) return false;
  if (worst != ncclSuccess) {
    const NcclError error(worst, "an NCCL operation on this communicator");
    abort();
    throw error;
  }
  return true;
}

void NcclGroup::wait_ready(std::string_view operation) {
  if (poll_until(limits_.deadline, [&] { return ready(); })) return;
  abort();
  throw Error(ErrorCode::kDeadline, fmt::format("{}: NCCL was still connecting the ranks after {} ms",
                                                operation, limits_.deadline.count()));
}

void NcclGroup::enqueue(cudaStream_t stream, std::string_view operation, const std::function<void()>& before,
                        const std::function<ncclResult_t(ncclComm_t)>& call) {
  wait_ready(operation);
  if (enqueued_ && last_stream_ != stream) {
    // Not recorded means our own stream, which is still there, or one of graphs.
    if (!order_recorded_ || last_stream_ == captured_stream_) order_.record(last_stream_);
    order_.hold_back(stream);
  }
  if (captured_stream_ != nullptr && captured_stream_ != stream && captured_stream_ != last_stream_) {
    order_.record(captured_stream_);
    order_.hold_back(stream);
  }
  if (before) before();
  check_nccl(call(comm()), operation);
  last_stream_ = stream;
  enqueued_ = true;
  order_recorded_ = false;
}

void NcclGroup::enqueue_captured(cudaStream_t stream, std::string_view operation,
                                 const std::function<ncclResult_t(ncclComm_t)>& call) {
  AMAXSCOPE_CHECK(enqueued_ && last_stream_ == stream, ErrorCode::kUsage,
                  "{} on a stream that is being captured into a CUDA graph: {}; run the step once on this "
                  "stream before it is "
                  "captured, and nothing else of this group in between",
                  operation,
                  enqueued_
                      ? "the operation before was on another stream, and a capture cannot wait for that one"
                      : "the ranks of this group have not talked yet");
  wait_ready(operation);
  check_nccl(call(comm()), operation);
  wait_ready(operation);  // what the caller enqueues next has to come behind it
  captured_stream_ = stream;
  order_recorded_ = false;
}

void NcclGroup::leave_stream() {
  order_.record(last_stream_);
  order_recorded_ = true;
}

void NcclGroup::abort() noexcept {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(std::exchange(comm_, nullptr)));
}

std::unique_ptr<NcclStaging> NcclGroup::take_staging(std::size_t bytes) {
  // The smallest that is large enough; a larger one is made rather than growing one.
  const auto fits = [&](const auto& staging) { return staging->host.bytes() >= bytes; };
  const auto by_size = [](const auto& a, const auto& b) { return a->host.bytes() < b->host.bytes(); };
  std::ranges::sort(free_, by_size);
  const auto found = std::ranges::find_if(free_, fits);
  if (found != free_.end()) {
    std::unique_ptr<NcclStaging> staging = std::move(*found);
    free_.erase(found);
    return staging;
  }
  std::size_t rounded = kSmallestStaging;
  while (rounded < bytes) rounded *= 2;
  const CudaDeviceScope scope(device_);
  auto staging = std::make_unique<NcclStaging>();
  staging->host = PinnedBuffer(rounded);
  staging->device = DeviceBuffer(rounded);
  staging->back = CudaEvent::create();
  return staging;
}

void NcclGroup::give_back(std::unique_ptr<NcclStaging> staging) noexcept {
  try {
    free_.push_back(std::move(staging));
  } catch (...) {
    keep_until_exit(std::move(staging));
  }
}

void NcclGroup::abandon(std::unique_ptr<NcclStaging> staging) noexcept {
  try {
    abandoned_.push_back(std::move(staging));
  } catch (...) {
    keep_until_exit(std::move(staging));
  }
}

}  // namespace amaxscope

#include "core/cuda/cuda_handles.hpp"

#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

namespace {

/// False while the work goes on.
bool finished(cudaError_t status, std::string_view operation) {
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, operation);
  return true;
}

}  // namespace

CudaStream CudaStream::create() {
  CudaStream result;
  check_cuda(cudaStreamCreateWithFlags(&result.stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return result;
}

CudaStream::~CudaStream() {
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

bool CudaStream::idle() const { return finished(cudaStreamQuery(stream_), "cudaStreamQuery"); }

CudaEvent CudaEvent::create() {
  CudaEvent result;
  check_cuda(cudaEventCreateWithFlags(&result.event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return result;
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

void CudaEvent::record(cudaStream_t stream) const {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool CudaEvent::done() const { return finished(cudaEventQuery(event_), "cudaEventQuery"); }

void CudaEvent::hold_back(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  check_cuda(cudaMalloc(&memory_, bytes), fmt::format("cudaMalloc of {} bytes", bytes));
}

DeviceBuffer::~DeviceBuffer() {
  if (memory_ != nullptr) static_cast<void>(cudaFree(memory_));
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
  check_cuda(cudaMallocHost(&memory_, bytes), fmt::format("cudaMallocHost of {} bytes", bytes));
}

PinnedBuffer::~PinnedBuffer() {
  if (memory_ != nullptr) static_cast<void>(cudaFreeHost(memory_));
}

}  // namespace amaxscope

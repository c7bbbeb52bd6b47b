// Owners of what the CUDA runtime hands out, of the device that is current when they are made. All are
// movable; a moved-from or default-constructed one is empty. Thread safety: as the CUDA functions. Making a
// buffer may block (it may synchronise the device), and so may destroying one: whoever must not block keeps
// buffers for reuse. Destructors ignore errors. Making throws CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace amaxscope {

/// A stream that does not wait for the default stream.
class CudaStream {
 public:
  CudaStream() = default;
  static CudaStream create();
  CudaStream(CudaStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~CudaStream();
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  /// True when everything that was enqueued is done. Does not block. Throws CudaError for what has failed on
  /// it.
  [[nodiscard]] bool idle() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event without a time stamp.
class CudaEvent {
 public:
  CudaEvent() = default;
  static CudaEvent create();
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent();
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream) const;
  /// True when the stream has come past the last record(), and when there was none. Does not block.
  [[nodiscard]] bool done() const;
  /// What is enqueued on the stream from now on runs after the last record().
  void hold_back(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Device memory, not initialised.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory, which the device copies from and to without the host; not initialised.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace amaxscope

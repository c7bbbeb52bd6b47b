// An imitation of the CUDA runtime and of NCCL, to be linked in their place under unchanged backend code that
// was compiled against their real headers. What it proves and what not: docs/nccl.md.
//
// Device memory is host memory that is registered and filled with 0xFF; a stream is a thread that works off
// its queue, later than it was told; an event query tells the truth; a collective takes place between
// processes on one machine (through shared memory), on the stream's thread, and ends when every rank has come
// or this one aborts. Everything that the real libraries allow but that no backend of ours should do, and
// everything that they would punish with undefined behaviour, is kept as a violation.
//
// State is of the process. Thread safety: all functions may be called from any thread.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace amaxscope::fake {

/// One device, no fault, no delay, no violation, all counts 0. What is alive stays alive.
void reset();

/// What cudaGetDeviceCount says; with an error every call of the runtime answers with it.
void set_devices(int devices);
void set_driver_error(cudaError_t error);
/// 90 is a device of compute capability 9.0, which it is after reset().
void set_compute_capability(int capability);
/// The number that ncclGetVersion gives.
void set_nccl_version(int code);

/// Each operation on a stream starts this much later than it could. 0 is as fast as threads are.
void set_stream_delay(std::chrono::microseconds delay);

/// The nth call (from 1) of the function from now on answers with this error, and does nothing.
void fail_at(std::string_view function, int nth, int error);
/// Every communicator of this process reports the error from now on (ncclCommGetAsyncError).
void break_communicators(ncclResult_t error);

/// Calls since reset(), successful or not.
int calls(std::string_view function);
/// Of all functions of both libraries, kernel launches included.
int all_calls();
/// Calls that make the host wait for the device, or may: synchronisation, plain allocation, pageable copies.
int host_waits();
/// Functions that were called, in alphabetical order.
std::vector<std::string> called();

/// What was made and not destroyed.
struct Live {
  std::size_t device_memory = 0;
  std::size_t pinned_memory = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t pools = 0;
  std::size_t communicators = 0;
  std::size_t graphs = 0;  ///< instantiated ones too
  friend bool operator==(const Live&, const Live&) = default;
};
Live live();
/// Copies between the device and memory that is not page-locked, which would make the host wait.
int pageable_copies();
/// NCCL operations that were called on the communicator since it was made.
int operations(ncclComm_t comm);

std::vector<std::string> violations();
void add_violation(std::string text);

/// A kernel launch: counted as "cudaLaunchKernel", which fail_at() can make fail. Memory is not looked at.
cudaError_t launch(cudaStream_t stream, std::function<void()> kernel);
/// Puts work into a stream as a kernel launch does (null: the default stream). again: done whenever the work
/// is put into a queue, now or when a graph is launched. True: it went into a capture.
bool enqueue(cudaStream_t stream, std::function<void()> work, std::function<void()> again = {});
/// Captures the stream into a graph that nobody gets.
void set_capturing(cudaStream_t stream, bool capturing);
/// True when all of it lies in one allocation of device memory.
bool is_device_memory(const void* address, std::size_t bytes);

}  // namespace amaxscope::fake

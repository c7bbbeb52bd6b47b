// The functions of the CUDA runtime that host code here uses.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/fake/fake_state.hpp"
#include "tests/fake/fake_stream.hpp"

using amaxscope::fake::Capture;
using amaxscope::fake::EventState;
using amaxscope::fake::MemoryKind;
using amaxscope::fake::State;
using amaxscope::fake::StreamQueue;

struct CUstream_st {
  std::shared_ptr<StreamQueue> queue;
};
struct CUevent_st {
  std::shared_ptr<EventState> state;
};
struct CUgraph_st {
  std::shared_ptr<Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<Capture> capture;
  bool frees_what_is_left = false;
  bool launched = false;
};

namespace amaxscope::fake {

namespace {

/// Freeing waits for the device; longer than this it would not end.
constexpr std::chrono::milliseconds kFreeWaits{3000};

class Handles {
 public:
  static Handles& get() {
    static Handles& handles = *new Handles;
    return handles;
  }
  std::mutex mutex;
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<cudaMemPool_t> pools;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::vector<std::shared_ptr<StreamQueue>>
      queues;  ///< also of streams that were destroyed with work in them
  std::shared_ptr<StreamQueue> default_queue;
};

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// What the call is to answer with at once.
cudaError_t enter(const char* function) {
  if (const std::optional<int> error = State::get().enter(function)) return static_cast<cudaError_t>(*error);
  return State::get().with_settings([](auto& settings) {
    if (settings.driver_error != cudaSuccess) return settings.driver_error;
    return settings.devices < 1 ? cudaErrorNoDevice : cudaSuccess;
  });
}

std::vector<std::shared_ptr<StreamQueue>> all_queues() {
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  return handles.queues;
}

/// For calls that wait, or that may: while a stream is captured they are not allowed, and end the capture. Of
/// the stream, or (none) of any that is captured in the mode that forbids them to the whole process.
cudaError_t outside_of_captures(const std::shared_ptr<StreamQueue>& stream = nullptr) {
  for (const std::shared_ptr<StreamQueue>& queue : all_queues()) {
    const std::shared_ptr<Capture> capture = queue->capture();
    if (capture == nullptr || (queue != stream && capture->mode != cudaStreamCaptureModeGlobal)) continue;
    capture->invalid = true;
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

/// What allows no call to free it.
bool is_of_graph(void* address) {
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  const auto has = [&](const auto* handle) { return handle->capture->memory.contains(address); };
  return std::ranges::any_of(handles.graphs, has) || std::ranges::any_of(handles.executables, has);
}

std::shared_ptr<EventState> event_of(cudaEvent_t event) {
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  return handles.events.contains(event) ? event->state : nullptr;
}

cudaError_t allocate(void** address, std::size_t bytes, MemoryKind kind) {
  constexpr std::size_t kAlignment = 256;
  if (address == nullptr || bytes == 0) return answer(cudaErrorInvalidValue);
  void* const memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) return answer(cudaErrorMemoryAllocation);
  std::memset(memory, 0xFF, bytes);
  State::get().add_memory(memory, bytes, kind);
  *address = memory;
  return cudaSuccess;
}

cudaError_t release(void* address, MemoryKind kind, const char* function) {
  if (address == nullptr) return cudaSuccess;
  if (!wait_all_idle_for(kFreeWaits)) {
    add_violation(fmt::format("{} waits for a device that does not come to rest", function));
    if (!State::get().remove_memory(address, kind)) return answer(cudaErrorInvalidValue);
    State::get().keep_forever(address);
    return cudaSuccess;
  }
  if (!State::get().remove_memory(address, kind)) return answer(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}

bool is_known(const void* address, std::size_t bytes, bool given_up_too = false) {
  return State::get().inside(address, bytes, MemoryKind::kDevice, given_up_too) ||
         State::get().inside(address, bytes, MemoryKind::kPinned);
}

/// Into the stream's queue; what was there when it was called must still be there when it runs.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  State& state = State::get();
  if (to_device != state.inside(to, bytes, MemoryKind::kDevice)) return answer(cudaErrorInvalidValue);
  if (from_device != state.inside(from, bytes, MemoryKind::kDevice)) return answer(cudaErrorInvalidValue);
  const bool to_known = is_known(to, bytes);
  const bool from_known = is_known(from, bytes);
  if (!to_known || !from_known) state.with_settings([](auto& settings) { ++settings.pageable_copies; });
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  queue->push([=] {
    if ((to_known && !is_known(to, bytes, true)) || (from_known && !is_known(from, bytes, true))) {
      return add_violation("a copy runs on memory that was freed after it was enqueued");
    }
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

}  // namespace

std::shared_ptr<StreamQueue> queue_of(cudaStream_t stream) {
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (stream != nullptr) return handles.streams.contains(stream) ? stream->queue : nullptr;
  if (handles.default_queue == nullptr) {
    handles.default_queue = StreamQueue::start();
    handles.queues.push_back(handles.default_queue);
  }
  return handles.default_queue;
}

bool wait_all_idle_for(std::chrono::milliseconds limit) {
  std::vector<std::shared_ptr<StreamQueue>> queues;
  {
    Handles& handles = Handles::get();
    const std::scoped_lock lock(handles.mutex);
    queues = handles.queues;
  }
  for (const auto& queue : queues) {
    if (!queue->wait_idle_for(limit)) return false;
  }
  return true;
}

void set_capturing(cudaStream_t stream, bool capturing) {
  const std::shared_ptr<StreamQueue> queue = queue_of(stream);
  if (capturing) {
    queue->begin_capture(cudaStreamCaptureModeGlobal);
  } else {
    queue->end_capture();
  }
}

cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = queue->capture();
  *status = cudaStreamCaptureStatusNone;
  if (capture == nullptr) return cudaSuccess;
  *status = capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = capture->id;
  return cudaSuccess;
}

cudaError_t launch(cudaStream_t stream, std::function<void()> kernel) {
  if (const cudaError_t error = enter("cudaLaunchKernel")) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  queue->push(std::move(kernel));
  return cudaSuccess;
}

// Of both libraries; fake_nccl.cpp counts its own.
std::size_t live_communicators();

Live live() {
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  return {.device_memory = State::get().memory_count(MemoryKind::kDevice),
          .pinned_memory = State::get().memory_count(MemoryKind::kPinned),
          .streams = handles.streams.size(),
          .events = handles.events.size(),
          .pools = handles.pools.size(),
          .communicators = live_communicators(),
          .graphs = handles.graphs.size() + handles.executables.size()};
}

}  // namespace amaxscope::fake

using namespace amaxscope::fake;  // NOLINT(google-build-using-namespace): this file is the C library

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  *count = State::get().with_settings([](auto& settings) { return settings.devices; });
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const int devices = State::get().with_settings([](auto& settings) { return settings.devices; });
  if (device < 0 || device >= devices) return answer(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  return allocate(address, bytes, MemoryKind::kDevice);
}

cudaError_t cudaFree(void* address) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  return release(address, MemoryKind::kDevice, __func__);
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  return allocate(address, bytes, MemoryKind::kPinned);
}

cudaError_t cudaFreeHost(void* address) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  return release(address, MemoryKind::kPinned, __func__);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  return copy(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  const cudaError_t error = copy(to, from, bytes, kind, nullptr);
  if (error == cudaSuccess) queue_of(nullptr)->wait_idle();
  return error;
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (!is_device_memory(address, bytes)) return answer(cudaErrorInvalidValue);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  queue->push([=] {
    if (!State::get().inside(address, bytes, MemoryKind::kDevice, true))
      return add_violation("memory was freed before it was set");
    std::memset(address, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  switch (attribute) {
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = State::get().with_settings([](auto& settings) { return settings.capability; }) / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = State::get().with_settings([](auto& settings) { return settings.capability; }) % 10;
      return cudaSuccess;
    default:
      return answer(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice)
    return answer(cudaErrorInvalidValue);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  *pool = reinterpret_cast<cudaMemPool_t>(new int);
  handles.pools.insert(*pool);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  return handles.pools.contains(pool) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (handles.pools.erase(pool) == 0) return answer(cudaErrorInvalidValue);
  delete reinterpret_cast<int*>(pool);
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** address, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (queue_of(stream) == nullptr) return answer(cudaErrorInvalidResourceHandle);
  Handles& handles = Handles::get();
  {
    const std::scoped_lock lock(handles.mutex);
    if (!handles.pools.contains(pool)) return answer(cudaErrorInvalidValue);
  }
  if (const cudaError_t error = allocate(address, bytes, MemoryKind::kDevice)) return error;
  const auto queue = queue_of(stream);
  const std::shared_ptr<Capture> capture = queue->capture();
  if (capture == nullptr) return cudaSuccess;
  // The graph's own: at one address, new in every launch.
  capture->memory.insert(*address);
  capture->unfreed.insert(*address);
  queue->push([memory = *address, bytes] { std::memset(memory, 0xFF, bytes); });
  return cudaSuccess;
}

/// The memory goes when the stream has come so far; from now on no call may name it.
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = queue->capture();
  if (capture != nullptr ? capture->unfreed.erase(address) == 0 : is_of_graph(address)) {
    add_violation(capture != nullptr ? "cudaFreeAsync in a capture of memory that was not allocated in it"
                                     : "cudaFreeAsync of memory that belongs to a graph");
    return answer(cudaErrorInvalidValue);
  }
  const std::size_t bytes = State::get().bytes_of(address);
  if (!State::get().give_up_memory(address)) {
    add_violation("cudaFreeAsync of memory that is not there");
    return answer(cudaErrorInvalidValue);
  }
  if (capture != nullptr) {
    queue->push([address, bytes] { std::memset(address, 0xFF, bytes); });
    return cudaSuccess;
  }
  queue->push([address] {
    State::get().remove_memory(address, MemoryKind::kDevice);
    std::free(address);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  *stream = new CUstream_st{StreamQueue::start()};
  handles.streams.insert(*stream);
  handles.queues.push_back((*stream)->queue);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  return cudaStreamCreateWithFlags(stream, 0);
}

/// The real one lets the work end; here that is allowed too, but said when it does not end.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = stream == nullptr ? nullptr : queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const std::size_t pending = queue->pending(); pending != 0) {
    add_violation(fmt::format("cudaStreamDestroy of a stream with {} operations in it", pending));
  }
  queue->close();
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  handles.streams.erase(stream);
  if (queue->idle()) std::erase(handles.queues, queue);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = outside_of_captures(queue)) return error;
  queue->wait_idle();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = outside_of_captures(queue)) return error;
  return queue->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  return capture_info(stream, status, nullptr);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id) {
#endif
  if (const cudaError_t error = enter("cudaStreamGetCaptureInfo")) return answer(error);
  return capture_info(stream, status, id);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (stream == nullptr) return answer(cudaErrorStreamCaptureUnsupported);  // the default stream
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  return queue->begin_capture(mode) ? cudaSuccess : answer(cudaErrorIllegalState);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Capture> capture = queue->end_capture();
  *graph = nullptr;
  if (capture == nullptr) return answer(cudaErrorIllegalState);
  if (capture->invalid) return answer(cudaErrorStreamCaptureInvalidated);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  *graph = new CUgraph_st{capture};
  handles.graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (!handles.graphs.contains(graph)) return answer(cudaErrorInvalidValue);
  // One with memory can be executable once at a time.
  const auto same = [&](const auto* other) { return other->capture == graph->capture; };
  if (!graph->capture->memory.empty() && std::ranges::any_of(handles.executables, same))
    return answer(cudaErrorInvalidValue);
  *executable =
      new CUgraphExec_st{.capture = graph->capture,
                         .frees_what_is_left = (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0};
  handles.executables.insert(*executable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto queue = queue_of(stream);
  if (queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  std::shared_ptr<Capture> capture;
  {
    Handles& handles = Handles::get();
    const std::scoped_lock lock(handles.mutex);
    if (!handles.executables.contains(executable)) return answer(cudaErrorInvalidValue);
    capture = executable->capture;
    const bool left = !capture->unfreed.empty() && !executable->frees_what_is_left;
    if (std::exchange(executable->launched, true) && left) return answer(cudaErrorInvalidValue);
  }
  if (queue->capture() != nullptr) {
    add_violation("a graph in a graph is not imitated");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  for (const Capture::Node& node : capture->nodes) queue->push([capture, &node] { node.work(); }, node.again);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (handles.graphs.erase(graph) == 0) return answer(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (handles.executables.erase(executable) == 0) return answer(cudaErrorInvalidValue);
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto state = event_of(event);
  const auto queue = queue_of(stream);
  if (state == nullptr || queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const std::shared_ptr<Capture> capture = queue->capture(); capture != nullptr) {
    if (state->captured() == capture->id) return cudaSuccess;
    capture->invalid = true;
    return answer(cudaErrorStreamCaptureIsolation);
  }
  if (state->captured() != 0) {
    add_violation("a stream that joins the capture of another is not imitated");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  queue->push([state, number = state->recorded()] { state->wait(number); });
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  if (const cudaError_t error = outside_of_captures()) return error;
  for (const auto& queue : all_queues()) queue->wait_idle();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  *event = new CUevent_st{std::make_shared<EventState>()};
  handles.events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  Handles& handles = Handles::get();
  const std::scoped_lock lock(handles.mutex);
  if (handles.events.erase(event) == 0) return answer(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto state = event_of(event);
  const auto queue = queue_of(stream);
  if (state == nullptr || queue == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (const std::shared_ptr<Capture> capture = queue->capture(); capture != nullptr) {
    state->record_in(capture->id);
    return cudaSuccess;
  }
  queue->push([state, number = state->record()] { state->complete(number); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto state = event_of(event);
  if (state == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (state->captured() != 0) return answer(cudaErrorCapturedEvent);
  if (const cudaError_t error = outside_of_captures()) return error;
  return state->done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = enter(__func__)) return answer(error);
  const auto state = event_of(event);
  if (state == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (state->captured() != 0) return answer(cudaErrorCapturedEvent);
  if (const cudaError_t error = outside_of_captures()) return error;
  state->wait(state->recorded());
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
    default:
      return "an error of the imitated CUDA";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}

}  // extern "C"

#include "runtime/stats/device_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

/// Room for some thousands of results; a model with more takes another.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kLargestResult = sizeof(Accumulated<ScaledError>);
constexpr std::size_t kIterationBytes = sizeof(std::int64_t);

std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Tensor bytes_beside(const TensorView& like, std::size_t bytes) {
  return Tensor::beside(like, DType::kU8, {static_cast<std::int64_t>(bytes)});
}
MutableTensorView part(Tensor& tensor, std::size_t first, std::size_t count) {
  return tensor.mutable_view().slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
}
TensorView as(const TensorView& bytes, DType type) {
  return {bytes.data(), type, Shape{1}, bytes.device(), bytes.stream()};
}

}  // namespace

DeviceResults::Queue& DeviceResults::queue_of(const TensorView& like) {
  std::shared_ptr<Queue>& queue = queues_[{like.device().index, like.stream().handle}];
  if (queue == nullptr) {
    DeviceBackend& backend = backend_of("statistics", like);
    auto made = std::make_shared<Queue>();
    made->like = TensorView(nullptr, DType::kU8, Shape{0}, like.device(), like.stream());
    made->workspace = bytes_beside(made->like, backend.kernels().workspace_bytes());
    queue = std::move(made);
  }
  return *queue;
}

void DeviceResults::reserve(Queue& queue, std::size_t bytes) {
  if (!queue.chunks.empty() && queue.used.back() + bytes <= queue.chunks.back().bytes()) return;
  DeviceBackend& backend = backend_of("statistics", queue.like);
  AMAXSCOPE_CHECK(
      !backend.capturing(queue.like.stream()), ErrorCode::kUsage,
      "more statistics in a captured step than begin_capture() has made room for; run the step once as "
      "it is before it is captured, so that all layers and tensors are known");
  Tensor chunk = bytes_beside(queue.like, std::max(kChunkBytes, bytes));
  backend.zero(chunk);
  queue.chunks.push_back(std::move(chunk));
  queue.used.push_back(0);
}

DeviceResults::Slot& DeviceResults::slot_of(Queue& queue, const Request& request) {
  if (const auto known = queue.slots.find(request.key); known != queue.slots.end()) return *known->second;
  const std::size_t bytes = rounded(request.bytes);
  reserve(queue, bytes);
  auto slot = std::make_unique<Slot>();
  slot->what = request.what;
  slot->chunk = queue.chunks.size() - 1;
  slot->offset = std::exchange(queue.used.back(), queue.used.back() + bytes);
  return *queue.slots.emplace(request.key, std::move(slot)).first->second;
}

DeviceResults::Consumer& DeviceResults::consumer_of(Slot& slot, Request& request) {
  auto found = std::ranges::find(slot.consumers, request.into, &Consumer::into);
  if (found == slot.consumers.end()) {
    slot.consumers.push_back({request.into, request.due, {}, {}});
    found = slot.consumers.end() - 1;
  }
  found->note = std::move(request.note);
  found->take = std::move(request.take);
  return *found;
}

void DeviceResults::add(const TensorView& x, Request request) {
  const bool captures = capturing_ != nullptr;
  AMAXSCOPE_CHECK(captures || !backend_of("statistics", x).capturing(x.stream()), ErrorCode::kUsage,
                  "a stream is being captured into a CUDA graph, of which the session was not told; call "
                  "begin_capture() with it before cudaStreamBeginCapture (docs/cuda.md)");
  Queue& queue = queue_of(x);
  AMAXSCOPE_CHECK(!captures || capturing_.get() == &queue, ErrorCode::kUsage,
                  "{} is on another stream than the one that begin_capture() was given", request.what);
  Slot& slot = slot_of(queue, request);
  const bool launched = slot.call == call_;  // for somebody else, of this very tensor
  const bool counted = request.once && (captures ? slot.pass == pass_ : slot.fed);
  if (captures && slot.pass == 0) {
    AMAXSCOPE_CHECK(
        kIterationBytes + (queue.flags + 1) * sizeof(std::uint32_t) <= queue.control.bytes(),
        ErrorCode::kUsage,
        "{}: more statistics in a captured step than begin_capture() has made room for; run the step "
        "once as it is before it is captured, so that all layers and tensors are known",
        request.what);
    slot.flag = queue.flags++;
  }
  if (!launched && !counted) {
    ResultSlot place{.memory = part(queue.chunks[slot.chunk], slot.offset, request.bytes),
                     .workspace = queue.workspace,
                     .once = request.once};
    if (captures) {
      place.iteration = as(part(queue.control, 0, kIterationBytes), DType::kI64);
      place.due =
          as(part(queue.control, kIterationBytes + slot.flag * sizeof(std::uint32_t), sizeof(std::uint32_t)),
             DType::kU32);
    }
    request.launch(place);
    slot.call = call_;
  }
  Consumer& consumer = consumer_of(slot, request);
  if (captures) {
    slot.pass = pass_;
    consumer.captured = true;
    return;
  }
  if (consumer.note && !consumer.waits) consumer.note();
  consumer.waits = true;
  slot.fed = true;
}

bool DeviceResults::is_due(const Slot& slot, std::int64_t iteration) {
  return std::ranges::any_of(slot.consumers, [&](const Consumer& consumer) {
    return consumer.captured && consumer.due->due(iteration);
  });
}

bool DeviceResults::overlooked(std::int64_t iteration) const {
  if (replayed_) return false;
  bool due = false;
  for (const auto& [stream, queue] : queues_) {
    for (const auto& [key, slot] : queue->slots) {
      if (slot->fed) return false;
      due = due || is_due(*slot, iteration);
    }
  }
  return due;
}

void DeviceResults::fetch(std::int64_t iteration) {
  for (const auto& [stream, queue] : queues_) {
    const bool waits = std::ranges::any_of(queue->slots, [&](const auto& entry) {
      return entry.second->fed || (replayed_ && is_due(*entry.second, iteration));
    });
    if (waits) fetch_queue(*queue, iteration);
  }
  replayed_ = false;
}

void DeviceResults::fetch_queue(Queue& queue, std::int64_t iteration) {
  DeviceBackend& backend = backend_of("statistics", queue.like);
  std::vector<std::unique_ptr<HostCopy>> copies;
  for (std::size_t i = 0; i < queue.chunks.size(); ++i) {
    const MutableTensorView used = part(queue.chunks[i], 0, queue.used[i]);
    copies.push_back(backend.staging().room_for(used));
    if (used.bytes() == 0) continue;
    copies.back()->fetch(used);
    backend.zero(used);
  }
  for (const auto& [key, slot] : queue.slots) {
    const bool fed = std::exchange(slot->fed, false);
    const auto* const there =
        static_cast<const std::byte*>(copies[slot->chunk]->host().data()) + slot->offset;
    AccumulatedHeader header;
    std::memcpy(&header, there, sizeof header);
    AMAXSCOPE_CHECK(!fed || header.runs != 0, ErrorCode::kInternal,
                    "{}: kernels were enqueued and left nothing", slot->what);
    for (Consumer& consumer : slot->consumers) {
      const bool replayed = replayed_ && consumer.captured && consumer.due->due(iteration);
      if (!std::exchange(consumer.waits, false) && !replayed) continue;
      if (header.runs == 0) continue;  // a captured step that was not launched
      AMAXSCOPE_CHECK(
          fed || header.iteration == iteration, ErrorCode::kUsage,
          "{}: a captured step ran in iteration {} with what before_replay() had said of iteration {}; "
          "call before_replay() before each launch, and launch on the stream that was captured",
          slot->what, iteration, header.iteration);
      consumer.take(there, iteration);
    }
  }
}

void DeviceResults::begin_capture(Stream stream, std::size_t results) {
  AMAXSCOPE_CHECK(
      stream.backend != nullptr, ErrorCode::kUsage,
      "begin_capture() with a stream that has no backend; it takes the stream of the step's tensors");
  const TensorView like(nullptr, DType::kU8, Shape{0}, stream.backend->device(), stream);
  Queue& queue = queue_of(like);
  reserve(queue, results * rounded(kLargestResult));
  // Flags of what was captured before must stay where they are. Room for some that come later.
  const std::size_t wanted = kIterationBytes + results * sizeof(std::uint32_t);
  if (!queue.control.defined() || queue.control.bytes() < wanted) {
    AMAXSCOPE_CHECK(
        queue.flags == 0, ErrorCode::kUsage,
        "begin_capture() makes room for {} statistics, and when a step was captured first there was "
        "room for {}; register all layers and observe all tensors before the first capture",
        results, (queue.control.bytes() - kIterationBytes) / sizeof(std::uint32_t));
    queue.control = bytes_beside(queue.like, wanted + results * sizeof(std::uint32_t));
    stream.backend->zero(queue.control);
  }
  capturing_ = queues_.at({like.device().index, stream.handle});
  queue.told.reset();
  ++pass_;
}

Stream DeviceResults::capture_stream() const {
  return capturing_ == nullptr ? Stream{} : capturing_->like.stream();
}

void DeviceResults::write_control(Queue& queue, std::int64_t iteration, bool none) {
  if (!none && queue.told == iteration) return;
  std::vector<std::uint32_t> flags(queue.flags, 0U);
  bool any = false;
  for (const auto& [key, slot] : queue.slots) {
    if (none || slot->pass == 0 || !is_due(*slot, iteration)) continue;
    flags[slot->flag] = 1;
    any = true;
  }
  queue.told = none ? std::nullopt : std::optional(iteration);
  if (!any && !queue.any_flag_set) return;  // the device knows already
  const MutableTensorView target =
      part(queue.control, 0, kIterationBytes + flags.size() * sizeof(std::uint32_t));
  const auto copy = backend_of("statistics", queue.like).staging().room_for(target);
  auto* const bytes = static_cast<std::byte*>(copy->host().data());
  std::memcpy(bytes, &iteration, kIterationBytes);
  std::memcpy(bytes + kIterationBytes, flags.data(), flags.size() * sizeof(std::uint32_t));
  copy->store(target);
  queue.any_flag_set = any;
}

void DeviceResults::before_replay(std::int64_t iteration) {
  for (const auto& [stream, queue] : queues_) {
    if (queue->flags == 0) continue;
    write_control(*queue, iteration, /*none=*/false);
    for (const auto& [key, slot] : queue->slots) {
      for (const Consumer& consumer : slot->consumers) {
        if (consumer.captured && consumer.note && consumer.due->due(iteration)) consumer.note();
      }
    }
  }
  replayed_ = true;
}

void DeviceResults::silence() noexcept {
  for (const auto& [stream, queue] : queues_) {
    if (!queue->any_flag_set) continue;
    try {
      write_control(*queue, 0, /*none=*/true);
    } catch (...) {  // the device has failed; the step that is replayed will meet the same error
      queue->any_flag_set = false;
    }
  }
}

std::shared_ptr<void> DeviceResults::captured_memory() const {
  auto kept = std::make_shared<std::vector<std::shared_ptr<Queue>>>();
  for (const auto& [stream, queue] : queues_) {
    if (queue->flags != 0) kept->push_back(queue);
  }
  return kept->empty() ? nullptr : std::shared_ptr<void>(std::move(kept));
}

}  // namespace amaxscope

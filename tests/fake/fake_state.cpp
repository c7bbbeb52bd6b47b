#include "tests/fake/fake_state.hpp"

#include <utility>

namespace amaxscope::fake {

State& State::get() {
  static State& state = *new State;
  return state;
}

void State::reset() {
  const std::scoped_lock lock(mutex_);
  settings_ = {};
  calls_.clear();
  faults_.clear();
  violations_.clear();
}

std::optional<int> State::enter(std::string_view function) {
  const std::scoped_lock lock(mutex_);
  ++calls_[std::string(function)];
  const auto fault = faults_.find(function);
  if (fault == faults_.end() || --fault->second.left > 0) return std::nullopt;
  const int error = fault->second.error;
  faults_.erase(fault);
  return error;
}

void State::fail_at(std::string_view function, int nth, int error) {
  const std::scoped_lock lock(mutex_);
  faults_[std::string(function)] = {nth, error};
}

int State::calls(std::string_view function) {
  const std::scoped_lock lock(mutex_);
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

std::vector<std::string> State::called() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, count] : calls_) names.push_back(name);
  return names;
}

void State::add_violation(std::string text) {
  const std::scoped_lock lock(mutex_);
  violations_.push_back(std::move(text));
}

std::vector<std::string> State::violations() {
  const std::scoped_lock lock(mutex_);
  return violations_;
}

void State::add_memory(void* base, std::size_t bytes, MemoryKind kind) {
  const std::scoped_lock lock(mutex_);
  memory_[static_cast<const std::byte*>(base)] = {bytes, kind};
}

bool State::remove_memory(void* base, MemoryKind kind) {
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(static_cast<const std::byte*>(base));
  if (found == memory_.end() || found->second.kind != kind) return false;
  memory_.erase(found);
  return true;
}

bool State::give_up_memory(void* base) {
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(static_cast<const std::byte*>(base));
  if (found == memory_.end() || found->second.kind != MemoryKind::kDevice || found->second.given_up)
    return false;
  found->second.given_up = true;
  return true;
}

std::size_t State::bytes_of(void* base) {
  const std::scoped_lock lock(mutex_);
  const auto found = memory_.find(static_cast<const std::byte*>(base));
  return found == memory_.end() ? 0 : found->second.bytes;
}

bool State::inside(const void* address, std::size_t bytes, MemoryKind kind, bool given_up_too) {
  const std::scoped_lock lock(mutex_);
  const auto* first = static_cast<const std::byte*>(address);
  auto after = memory_.upper_bound(first);
  if (after == memory_.begin()) return false;
  const auto& [base, memory] = *--after;
  return memory.kind == kind && (given_up_too || !memory.given_up) && first + bytes <= base + memory.bytes;
}

std::size_t State::memory_count(MemoryKind kind) {
  const std::scoped_lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& [base, memory] : memory_) {
    count += memory.kind == kind && !memory.given_up ? 1 : 0;
  }
  return count;
}

void reset() { State::get().reset(); }
void set_devices(int devices) {
  State::get().with_settings([&](auto& settings) { settings.devices = devices; });
}
void set_compute_capability(int capability) {
  State::get().with_settings([&](auto& settings) { settings.capability = capability; });
}
void set_driver_error(cudaError_t error) {
  State::get().with_settings([&](auto& settings) { settings.driver_error = error; });
}
void set_nccl_version(int code) {
  State::get().with_settings([&](auto& settings) { settings.nccl_version = code; });
}
void set_stream_delay(std::chrono::microseconds delay) {
  State::get().with_settings([&](auto& settings) { settings.stream_delay = delay; });
}
void fail_at(std::string_view function, int nth, int error) { State::get().fail_at(function, nth, error); }
int calls(std::string_view function) { return State::get().calls(function); }
int all_calls() {
  int sum = 0;
  for (const std::string& function : called()) sum += calls(function);
  return sum;
}
int host_waits() {
  int sum = pageable_copies();
  for (const std::string_view function :
       {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMalloc",
        "cudaFree", "cudaMallocHost", "cudaFreeHost"}) {
    sum += calls(function);
  }
  return sum;
}
std::vector<std::string> called() { return State::get().called(); }
int pageable_copies() {
  return State::get().with_settings([](auto& settings) { return settings.pageable_copies; });
}
std::vector<std::string> violations() { return State::get().violations(); }
void add_violation(std::string text) { State::get().add_violation(std::move(text)); }
bool is_device_memory(const void* address, std::size_t bytes) {
  return State::get().inside(address, bytes, MemoryKind::kDevice);
}

}  // namespace amaxscope::fake

// Steps that are captured into a CUDA graph, and what waits in device memory.

#include "core/error.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

void DebugSession::Impl::begin_capture(Stream stream) {
  if (!enabled) return;
  if (!active_->any_feature()) {  // until another config comes
    captured_ = true;
    config_changed_ = false;
    return;
  }
  AMAXSCOPE_CHECK(
      stepped_, ErrorCode::kUsage,
      "begin_capture() before the first step(): in it ranks compare what they have registered and "
      "connect; run a step as it is before one is captured");
  AMAXSCOPE_CHECK(!active_->device_results.capturing(), ErrorCode::kUsage,
                  "begin_capture() again without end_capture()");
  try {
    // Training and evaluation have each their own.
    active_->device_results.begin_capture(stream, 2 * active_->stats.size());
    for (const auto& [name, state] : layers_) state->begin_capture();
    for (const auto& [name, target] : free_tensors_) {
      if (!target->features.empty()) target->next = iteration;
    }
    captured_formats_.clear();
  } catch (const Error& error) {
    fail(error);
    return;
  }
  captured_ = true;
  config_changed_ = false;
}

void DebugSession::Impl::end_capture() {
  active_->device_results.end_capture();
  if (!enabled) return;
  for (const auto& [name, state] : layers_) state->end_capture();
  for (const auto& [name, target] : free_tensors_) {
    target->next = target->features.empty() ? kNever : iteration;
  }
}

std::string DebugSession::Impl::changed_since_capture() {
  if (!enabled || !captured_) return {};
  if (config_changed_) return "another config has come into force since";
  for (const auto& [name, state] : layers_) {
    if (state->parts.features.empty()) continue;
    for (const std::unique_ptr<DebugQuantizer>& quantizer : state->parts.quantizers) {
      if (std::string changed = quantizer->changed_since_capture(iteration); !changed.empty()) return changed;
    }
  }
  return {};
}

void DebugSession::Impl::before_replay() {
  if (!captured_) return;
  if (!enabled) return active_->device_results.silence();
  const std::string changed = changed_since_capture();
  AMAXSCOPE_CHECK(changed.empty(), ErrorCode::kUsage,
                  "iteration {}: the captured step is not what the config wants now: {}; capture it again "
                  "(needs_capture() says when)",
                  iteration, changed);
  try {
    active_->device_results.before_replay(iteration);
    if (iteration < active_->next_due) return;
    for (const auto& [tensor, format] : captured_formats_) active_->stats.note_format(*tensor, format);
  } catch (const Error& error) {
    fail(error);
  }
}

void DebugSession::Impl::fetch_device_results() {
  DeviceResults& results = active_->device_results;
  if (!told_of_replays_ && results.overlooked(iteration)) {
    told_of_replays_ = true;
    log.warn(
        "iteration {}: statistics of the captured step are due, and neither was before_replay() called nor "
        "did the "
        "step run as it is; they are not logged",
        iteration);
  }
  results.fetch(iteration);
}

}  // namespace amaxscope

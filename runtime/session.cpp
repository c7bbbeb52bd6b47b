#include "runtime/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

namespace {
constexpr int kAbortStatus = 71;
}  // namespace

DebugSession::Impl::~Impl() {
  for (const std::shared_ptr<Sink>& sink : sinks_) {
    try {
      if (!closed_) sink->close();
    } catch (const std::exception& error) {
      log.error("a log could not be closed: {}", error.what());
    }
  }
}

void DebugSession::Impl::freeze() {
  if (!enabled) return;
  try {
    active_->stats.settle();
  } catch (const Error& error) {
    fail(error);
  }
}

void DebugSession::Impl::scalar(std::string_view name, double value) {
  if (!enabled || !active_->any_feature()) return;
  active_->for_each_feature([&](Feature& feature) { feature.inspect_scalar(name, value); });
  if (is_world_leader()) scalars_.insert_or_assign(std::string(name), value);
}

void DebugSession::Impl::step() {
  std::vector<Event> events;
  std::unique_ptr<Change> change;
  if (enabled) {
    flight_->set_where("step()");
    try {
      retired_.reset();
      if (!stepped_) first_step();
      fetch_device_results();
      active_->for_each_feature([&](Feature& feature) { feature.end_iteration(iteration); });
      if (active_->registrations_changed) {
        active_->stats.settle();
        active_->stats.tell_skipped(groups_.stage == nullptr || groups_.stage->rank() == 0);
        active_->next_due = active_->stats.next_due(iteration).value_or(kNever);
        active_->registrations_changed = false;
      }
      StatStore::Reduced reduced;
      if (iteration >= active_->next_due) {
        reduced = active_->stats.reduce(iteration);
        active_->next_due = active_->stats.next_due(iteration + 1).value_or(kNever);
      }
      for (auto& [owner, finding] : reduced.findings) report(owner, std::move(finding));
      std::optional<ConfigText> offered;
      events = poll(offered);
      if (offered) change = prepare_change(*offered, events);
      if (poll_every_) recent_steps_.add(iteration, reduced.records);
      if (!events.empty()) record_events(events);
      write_step(reduced.records, events);
    } catch (const Error& error) {
      fail(error);
      change.reset();  // what was agreed on before, a stop, holds nevertheless
    }
  } else if (detached && signal_ && signal_->seen()) {
    signal_->taken();
    write_state_report();
  }
  ++iteration;
  if (change != nullptr) commit(std::move(change));
  if (enabled) {
    flight_->set_state(FlightState::kTraining);
    flight_->set_iteration(iteration);
    flight_->set_where("training");
  }
  if (tp_amax_ != nullptr) {
    guarded_.guard(groups_.tp, "amax").set_iteration(iteration);
    tp_amax_->forget();
  }
  act_on(events);
}

template <class Write>
bool DebugSession::Impl::written(Write&& write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) throw;
    log.error(
        "iteration {}: {}; this rank writes no more to it, what is there stays, and the training goes on",
        iteration, error.what());
    if (!write_failure) write_failure = error.what();
    return false;
  }
}

void DebugSession::Impl::write_step(const std::vector<StatRecord>& records,
                                    const std::vector<Event>& events) {
  if (records.empty() && findings_.empty() && scalars_.empty() && events.empty()) return;
  const std::vector<Finding> findings = std::exchange(findings_, {});
  std::erase_if(sinks_, [&](const std::shared_ptr<Sink>& sink) {
    return !written([&] {
      for (const StatRecord& record : records) sink->record(record);
      for (const Finding& finding : findings) sink->finding(finding);
      if (!scalars_.empty()) sink->scalars(iteration, scalars_);
      if (is_world_leader()) {
        for (const Event& event : events) sink->event(iteration, event);
      }
      sink->end_of_step(iteration);
    });
  });
  scalars_.clear();
}

void DebugSession::Impl::detach(std::string_view why) {
  const bool goes_on = failure_policy() == FailurePolicy::kDetach;
  flight_->set_state(goes_on ? FlightState::kDetached : FlightState::kFailed);
  flight_->set_where(fmt::format("{} in iteration {}: {}", goes_on ? "detached" : "ending the job", iteration,
                                 why.substr(0, why.find('\n'))));
  guarded_.leave();
  enabled = false;
  detached = true;
  for (const auto& [name, state] : layers_) state->gate.next = kNever;
}

void DebugSession::Impl::fail(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  if (own != nullptr && own->is_bad_input()) throw;  // the user's to mend, the same on all ranks
  give_up(error, error.what());
}

void DebugSession::Impl::give_up(const std::exception& error, const std::string& what) {
  const bool detaching = failure_policy() == FailurePolicy::kDetach;
  const std::string consequence =
      detaching
          ? fmt::format("Stopped observing; the training goes on untouched. What was logged before is in {}.",
                        options_.log_dir.empty() ? "no file" : options_.log_dir.string())
          : fmt::format("{}: ending the job.", alters_numerics() ? "The config changes what is trained"
                                                                 : "The failure policy is abort");
  const std::string report = fmt::format("iteration {}: {}\n{}", iteration, what, consequence);
  // Ranks that disagree all hold the same report; one of each tensor-parallel group says it. Not where the
  // first to come ends all of them.
  const auto* own = dynamic_cast<const Error*>(&error);
  const bool shared = own != nullptr && own->code() == ErrorCode::kMismatch;
  if (detaching && shared && groups_.tp != nullptr && groups_.tp->rank() != 0 && log.has_files()) {
    log.write_to_files(LogLevel::kError, report);
  } else {
    log.error("{}", report);
  }
  detach(what);
  if (detaching) return;
  if (groups_.world != nullptr && groups_.world->size() > 1) {
    groups_.world->abort(kAbortStatus, "amaxscope: the debug runtime failed, see above");
  }
  throw;
}

void DebugSession::Impl::hook_failed(const Feature& feature, const InspectedTensor& tensor, bool altering,
                                     const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  const bool agreement =
      own != nullptr && (own->code() == ErrorCode::kMismatch || own->code() == ErrorCode::kDeadline);
  // A feature is not to blame for ranks that do not come.
  const bool capturing = active_->device_results.capturing();
  std::string what = agreement ? fmt::format("{} {}: {}", tensor.layer, tensor.name, error.what())
                               : fmt::format("{} failed on {} of {}: {}", feature.label(), tensor.name,
                                             tensor.layer, error.what());
  if (capturing && !agreement) {
    what = fmt::format(
        "{} cannot look at {} of {} in a step that is captured into a CUDA graph: {}. Leave this "
        "layer, tensor or statistic out of section {}, or run the step as it is where it is due",
        feature.label(), tensor.name, tensor.layer, error.what(), feature.config().section);
  }
  if (altering && failure_policy() == FailurePolicy::kDetach) {
    log.error("iteration {}: {}", iteration, what);
    return;  // the caller throws: there is no tensor to go on with
  }
  give_up(error, what);
}

void DebugSession::Impl::close() {
  if (closed_) return;
  closed_ = true;
  const std::vector<Finding> findings = std::exchange(findings_, {});
  for (const std::shared_ptr<Sink>& sink : sinks_) {
    written([&] {
      for (const Finding& finding : findings) sink->finding(finding);
      if (!run_.run_id.empty() && !detached) sink->end_of_run(iteration - 1);
      sink->close();
    });
  }
  // A run with a log that lacks something stays marked as one that was not closed.
  if (!run_.run_id.empty() && !detached && !write_failure && !options_.log_dir.empty() && is_world_leader()) {
    written([&] { mark_run_closed(options_.log_dir, run_.run_id, iteration - 1); });
  }
  if (enabled) {
    flight_->set_where(fmt::format("session closed before iteration {}", iteration));
    if (own_flight_) flight_->set_state(FlightState::kFinished);
    guarded_.leave();
  }
  enabled = false;
  for (const auto& [name, state] : layers_) state->gate.next = kNever;
}

std::map<std::string, std::vector<std::string>> DebugSession::Impl::section_layers() const {
  return active_->section_layers();
}

DebugSession::DebugSession(const FeatureRegistry& registry, const SessionGroups& groups,
                           SessionOptions options)
    : impl_(std::make_unique<Impl>(registry, groups, std::move(options))) {}
DebugSession::~DebugSession() = default;

LayerHandle DebugSession::layer(const LayerDescription& description, OperandQuantizers parents) {
  return impl_->layer(description, std::move(parents));
}
void DebugSession::freeze() { impl_->freeze(); }
void DebugSession::weights_are_final() { impl_->weights_are_final(); }
std::int64_t DebugSession::iteration() const noexcept { return impl_->iteration; }
bool DebugSession::enabled() const noexcept { return impl_->enabled; }
bool DebugSession::detached() const noexcept { return impl_->detached; }
const std::optional<std::string>& DebugSession::write_failure() const noexcept {
  return impl_->write_failure;
}
void DebugSession::scalar(std::string_view name, double value) { impl_->scalar(name, value); }
void DebugSession::observe(std::string_view name, std::string_view kind, const TensorView& view,
                           Layout layout, const TensorMoment& moment) {
  impl_->observe(name, kind, view, layout, moment);
}
bool DebugSession::observes_update(std::string_view name, Layout layout) {
  return impl_->observes_update(name, layout);
}
void DebugSession::observe_update(std::string_view name, const TensorView& weight_before,
                                  const TensorView& update, Layout layout,
                                  const TensorView* normalized_gradient) {
  impl_->observe_update(name, weight_before, update, layout, normalized_gradient);
}
void DebugSession::log_tensor_stats(std::string_view layer, std::string_view tensor, const TensorView& view,
                                    Communicator* group) {
  impl_->log_tensor_stats(layer, tensor, view, group);
}
void DebugSession::set_reduction_group(Communicator* group) { impl_->set_reduction_group(group); }
void DebugSession::save_state(const std::filesystem::path& dir) const { impl_->save_state(dir); }
void DebugSession::load_state(const std::filesystem::path& dir) { impl_->load_state(dir); }
void DebugSession::replace_config(const std::string& text) { impl_->replace_config(text); }
void DebugSession::begin_capture(Stream stream) { impl_->begin_capture(stream); }
void DebugSession::end_capture() { impl_->end_capture(); }
bool DebugSession::needs_capture() { return !impl_->changed_since_capture().empty(); }
void DebugSession::before_replay() { impl_->before_replay(); }
void DebugSession::step() { impl_->step(); }
void DebugSession::close() { impl_->close(); }
Log& DebugSession::log() noexcept { return impl_->log; }
std::map<std::string, std::vector<std::string>> DebugSession::section_layers() const {
  return impl_->section_layers();
}

}  // namespace amaxscope

// What only data or a signal decides, decided by all ranks together.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "runtime/live/event_files.hpp"
#include "runtime/live/event_text.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kMostCauses = 3;
constexpr std::int64_t kMostEventRecords = 100;
constexpr std::int64_t kPollEvery = 10;
/// One signal for the job reaches the ranks one after the other, maybe with a poll between them.
constexpr auto kSameSignal = std::chrono::seconds(2);

}  // namespace

void DebugSession::Impl::start_poll() {
  poll_every_.reset();
  if (active_->triggers()) {
    poll_every_ = options_.poll_every.value_or(1);
  } else if (accepts_changes() || signal_) {
    poll_every_ = options_.poll_every.value_or(kPollEvery);
  }
  if (poll_every_ && !poll_) poll_.emplace(guarded_.guard(groups_.world, "poll"));
}

void DebugSession::Impl::report(const Feature* feature, Finding finding) {
  if (finding.ranks.empty()) finding.ranks = {own_rank()};
  std::string place;
  if (!finding.layer.empty()) place += finding.layer;
  if (!finding.tensor.empty()) place += fmt::format("{}{}", place.empty() ? "" : " ", finding.tensor);
  log.error("{} at iteration {}{}{}, {}: {}", finding.check, finding.iteration, place.empty() ? "" : ", ",
            place, ranks_text(finding.ranks), finding.what);
  if (feature != nullptr && feature->trigger() != EventAction::kNone) {
    raised_.push_back({.kind = "trigger",
                       .iteration = finding.iteration,
                       .action = feature->trigger(),
                       .feature = feature->label(),
                       .check = finding.check,
                       .layer = finding.layer,
                       .tensor = finding.tensor,
                       .ranks = finding.ranks,
                       .what = finding.what});
  }
  findings_.push_back(std::move(finding));
}

void DebugSession::Impl::raise_signal() {
  if (!signal_ || !signal_->seen()) return;
  signal_->taken();
  if (std::chrono::steady_clock::now() - signal_answered_ < kSameSignal) return;
  raised_.push_back({.kind = "signal",
                     .iteration = iteration,
                     .action = EventAction::kRecord,
                     .feature = {},
                     .check = "SIGUSR1",
                     .layer = {},
                     .tensor = {},
                     .ranks = {own_rank()},
                     .what = "asked for the state of the runtime"});
}

std::vector<Event> DebugSession::Impl::poll(std::optional<ConfigText>& change) {
  if (!poll_every_ || iteration % *poll_every_ != 0) return {};
  raise_signal();
  look_for_config();
  const std::uint32_t offered =
      offered_ ? static_cast<std::uint32_t>(offered_->source.size() + offered_->text.size()) + 1 : 0;
  const Poll::Answer answer = poll_->exchange(pack_events(raised_, Poll::kLongestText), offered, iteration);
  raised_.clear();
  std::vector<Event> events = merge_events(answer.texts);
  for (const Event& event : events) {
    if (event.kind == "signal") signal_answered_ = std::chrono::steady_clock::now();
    if (is_world_leader()) {
      log.warn("event of iteration {}, {}: {}", iteration, to_string(event.action), sentence(event));
    }
  }
  if (answer.number != 0) change = share_config(answer.number - 1);
  return events;
}

void DebugSession::Impl::record_events(const std::vector<Event>& events) {
  if (options_.log_dir.empty()) return;
  if (std::ranges::any_of(events, [](const Event& event) { return event.kind == "signal"; })) {
    write_state_report();
  }
  if (++event_records_ > kMostEventRecords) {
    if (event_records_ == kMostEventRecords + 1) {
      log.warn("{} events have been written to events/; later ones are in metrics/ only", kMostEventRecords);
    }
    return;
  }
  std::vector<Recollection> recent;
  active_->for_each_feature([&](const Feature& feature) {
    feature.recent([&](RecentTensor tensor) { recent.push_back({feature.label(), std::move(tensor)}); });
  });
  try {
    const std::filesystem::path file = write_event_record(options_.log_dir, {.run_id = run_.run_id,
                                                                             .rank = own_rank(),
                                                                             .iteration = iteration,
                                                                             .events = events,
                                                                             .steps = &recent_steps_,
                                                                             .recent = recent});
    if (is_world_leader()) log.info("what led to it is in {}, of each rank", file.parent_path().string());
  } catch (const Error& error) {
    log.error("iteration {}: what led to the event is not written: {}", iteration, error.what());
  }
}

void DebugSession::Impl::act_on(const std::vector<Event>& events) {
  std::string causes;
  std::size_t stops = 0;
  bool dumps = false;
  for (const Event& event : events) {
    dumps = dumps || event.action == EventAction::kDump;
    if (event.action != EventAction::kStop) continue;
    if (++stops <= kMostCauses) causes += fmt::format("{}{}", causes.empty() ? "" : "\n", sentence(event));
  }
  if (stops > kMostCauses) causes += fmt::format("\nand {} more", stops - kMostCauses);
  if (stops > 0) throw Error(ErrorCode::kStopped, causes);
  if (!dumps || active_->event_dump == nullptr) return;
  active_->event_dump->arm(iteration);
  for (const auto& [name, state] : layers_) {
    if (state->parts.features.empty()) continue;
    for (const auto& quantizer : state->parts.quantizers) quantizer->replan();
    state->gate.next = iteration;
  }
  for (const auto& [name, target] : free_tensors_) {
    if (!target->features.empty()) target->next = iteration;
  }
}

}  // namespace amaxscope

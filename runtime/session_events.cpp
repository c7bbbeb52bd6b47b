// What only data decides, decided by all ranks together.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "runtime/live/event_text.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

namespace {
constexpr std::size_t kMostCauses = 3;
}  // namespace

void DebugSession::Impl::start_poll() {
  poll_every_.reset();
  for_each_feature([this](const Feature& feature) {
    if (feature.trigger() != EventAction::kNone) poll_every_ = options_.poll_every.value_or(1);
  });
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

std::vector<Event> DebugSession::Impl::agree_on_events() {
  if (!poll_every_ || iteration % *poll_every_ != 0) return {};
  const Poll::Answer answer = poll_->exchange(pack_events(raised_, Poll::kLongestText), 0, iteration);
  raised_.clear();
  std::vector<Event> events = merge_events(answer.texts);
  if (is_world_leader()) {
    for (const Event& event : events)
      log.warn("event of iteration {}, {}: {}", iteration, to_string(event.action), sentence(event));
  }
  return events;
}

void DebugSession::Impl::act_on(const std::vector<Event>& events) const {
  std::string causes;
  std::size_t stops = 0;
  for (const Event& event : events) {
    if (event.action != EventAction::kStop) continue;
    if (++stops <= kMostCauses) causes += fmt::format("{}{}", causes.empty() ? "" : "\n", sentence(event));
  }
  if (stops == 0) return;
  if (stops > kMostCauses) causes += fmt::format("\nand {} more", stops - kMostCauses);
  throw Error(ErrorCode::kStopped, causes);
}

}  // namespace amaxscope

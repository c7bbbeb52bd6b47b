// One config in the place of another while the run goes on.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

void DebugSession::Impl::replace_config(const std::string& text) {
  AMAXSCOPE_CHECK(options_.replaceable_config, ErrorCode::kUsage,
                  "the config of this session cannot be replaced; set SessionOptions::replaceable_config");
  if (!enabled || !is_world_leader()) return;
  ConfigText offered{"replaced config", text};
  static_cast<void>(load_config(offered.text, offered.source, registry_));
  offered_ = std::move(offered);
}

void DebugSession::Impl::look_for_config() {
  if (!watch_) return;
  const std::optional<ConfigWatch::News> news = watch_->look();
  if (!news) return;
  if (news->readable) {
    offer_config({watch_->path().string(), news->text});
  } else {
    log.error("iteration {}: {}; the config in force stays", iteration, news->text);
  }
}

void DebugSession::Impl::offer_config(ConfigText offered) {
  if (offered.text == active_->config.text) {
    offered_.reset();
    return;
  }
  try {
    static_cast<void>(load_config(offered.text, offered.source, registry_));
    offered_ = std::move(offered);
  } catch (const Error& error) {
    offered_.reset();
    log.error("iteration {}: the new config is not taken, the one in force stays:\n{}", iteration,
              error.what());
  }
}

DebugSession::Impl::ConfigText DebugSession::Impl::share_config(std::size_t bytes) {
  std::string content;
  if (offered_) content = offered_->source + '\0' + offered_->text;
  offered_.reset();
  // Only the first rank of the world has content; the others add zeros to the maximum.
  std::vector<std::uint32_t> words((bytes + 1) / sizeof(std::uint32_t) + 1);
  if (!content.empty()) std::memcpy(words.data(), content.data(), content.size());
  poll_->guard().reduce_max(words, words.size(), {.what = "new config"});
  content.assign(reinterpret_cast<const char*>(words.data()), bytes + 1);
  const std::size_t end = content.find('\0');
  return {content.substr(0, end), content.substr(end + 1)};
}

bool DebugSession::Impl::all_ready(const ConfigText& text, const std::function<void()>& stage) {
  std::string problem;
  try {
    stage();
  } catch (const Error& error) {
    if (!error.is_bad_input()) throw;
    problem = error.what();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const Poll::Answer answer = poll_->exchange(problem.substr(0, Poll::kLongestText), 0, iteration);
  if (answer.texts.empty()) return true;
  if (!is_world_leader()) return false;
  std::vector<std::string> said;
  for (std::size_t rank = 0; rank < answer.texts.size(); ++rank) {
    const std::string& one = answer.texts[rank];
    if (one.empty() || std::ranges::find(said, one) != said.end()) continue;
    said.push_back(one);
    log.error("iteration {}: the new config ({}) is not taken, the one in force stays; rank {}: {}",
              iteration, text.source,
              groups_.world == nullptr ? own_rank() : groups_.world->world_ranks()[rank], one);
  }
  return false;
}

std::unique_ptr<DebugSession::Impl::Change> DebugSession::Impl::prepare_change(const ConfigText& text,
                                                                               std::vector<Event>& events) {
  if (text.text == active_->config.text) return nullptr;
  auto change = std::make_unique<Change>();
  // First what talks to nobody, so that no rank waits for one that has refused.
  const bool admitted = all_ready(text, [&] {
    change->active = std::make_unique<ActiveConfig>(load_config(text.text, text.source, registry_), registry_,
                                                    guarded_, log, options_.event_dump_bytes);
    for (const auto& [name, state] : layers_) {
      change->layers.emplace_back(
          state.get(), LayerParts{.features = admit(state->description, *change->active), .quantizers = {}});
    }
    for (const auto& [name, target] : free_tensors_) {
      change->free_tensors.emplace_back(target.get(), change->active->match(target->tensor, target->base));
    }
  });
  if (!admitted) return nullptr;
  const bool registered = all_ready(text, [&] {
    make_tp_agreement(*change->active);
    attach_features(*change->active);
    for (auto& [state, parts] : change->layers) {
      if (!parts.features.empty()) parts = make_parts(*state, std::move(parts.features), *change->active);
    }
    for (const auto& [target, features] : change->free_tensors) {
      if (!features.empty()) register_free(*target, features, *change->active);
    }
    report_sections(*change->active);
  });
  if (!registered) return nullptr;
  events.push_back(
      {.kind = "config",
       .iteration = iteration,
       .action = EventAction::kRecord,
       .feature = {},
       .check = "config change",
       .layer = {},
       .tensor = {},
       .ranks = {},
       .what = fmt::format("{} (digest {}) is in force from iteration {} instead of {} (digest {})",
                           text.source, text_digest(text.text), iteration + 1, active_->config.source,
                           text_digest(active_->config.text))});
  if (is_world_leader()) {
    for (const std::string& warning : change->active->config.warnings) log.warn("{}", warning);
    log.warn("iteration {}: {}", iteration, events.back().what);
  }
  return change;
}

void DebugSession::Impl::commit(std::unique_ptr<Change> change) {
  try {
    change->active->take_over(*active_, log);
    std::swap(active_, change->active);
    config_changed_ = true;
    captured_formats_.clear();
    DeviceResults& before = change->active->device_results;
    before.silence();
    if (auto memory = before.captured_memory()) captured_memory_.push_back(std::move(memory));
    for (auto& [state, parts] : change->layers) {
      std::swap(state->parts, parts);
      state->planned_iteration = -1;
      state->any_enabled = false;
      state->gate.next = state->parts.features.empty() ? kNever : iteration;
    }
    for (auto& [target, features] : change->free_tensors) {
      std::swap(target->features, features);
      target->next = target->features.empty() ? kNever : iteration;
    }
    retired_ = std::move(change);
    start_poll();
    run_.config_changes.push_back({.iteration = iteration,
                                   .source = active_->config.source,
                                   .text = active_->config.text,
                                   .digest = text_digest(active_->config.text),
                                   .alters_numerics = active_->altering(),
                                   .section_layers = active_->layers_of_all_stages()});
    write_run();
  } catch (const Error& error) {
    fail(error);
  }
}

}  // namespace amaxscope

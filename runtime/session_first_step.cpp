// What a session finds out once, when every layer is registered: sections that matched nothing anywhere, and
// in pipeline jobs what the other stages have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "runtime/config/number_hint.hpp"
#include "runtime/session_impl.hpp"

namespace amaxscope {

namespace {

/// The rank of a group whose number in the world is the lowest.
int lowest_of(const Communicator& group) {
  const std::vector<int>& ranks = group.world_ranks();
  return static_cast<int>(std::ranges::min_element(ranks) - ranks.begin());
}

/// Patterns of the section that took layers of this rank by a part of a number.
std::vector<std::string> number_hints(const ActiveConfig::Section& section) {
  std::vector<std::string> hints;
  const auto add = [&](const Pattern* pattern) {
    if (pattern == nullptr) return;
    std::vector<std::string> names;
    std::ranges::copy_if(section.layers, std::back_inserter(names),
                         [&](const std::string& name) { return pattern->found_in(name); });
    if (std::optional<std::string> hint = number_hint(*pattern, names)) hints.push_back(std::move(*hint));
  };
  if (section.config->layers != nullptr) add(section.config->layers->deciding_pattern());
  if (section.config->observe) add(&*section.config->observe);
  return hints;
}

}  // namespace

bool DebugSession::Impl::has_other_stages() const noexcept {
  return groups_.world != nullptr && groups_.stage != nullptr &&
         groups_.stage->size() < groups_.world->size();
}

void DebugSession::Impl::join_stage_leaders() {
  if (!has_other_stages()) return;
  const bool leads = groups_.stage->rank() == lowest_of(*groups_.stage);
  stage_leaders_ = guarded_.guard(groups_.world, "control")
                       .group()
                       .split(leads ? 0 : -1, groups_.world->rank(), {.what = "leaders of stages"});
}

void DebugSession::Impl::first_step() {
  stepped_ = true;
  report_sections(*active_);
  write_run();
  if (!is_world_leader()) return;
  for (const auto& [section, layers] : active_->layers_of_all_stages()) {
    log.info("section {} matches: {}", section,
             layers.empty() ? "nothing" : fmt::format("{}", fmt::join(layers, ", ")));
  }
}

void DebugSession::Impl::report_sections(ActiveConfig& active) {
  const std::vector<bool> used = sections_in_use(active);
  const std::vector<StageLayers> stages = gather_stages(active);
  report_idle_sections(active, used, stages);
  active.joined_layers = joined_sections(stages);
}

std::vector<bool> DebugSession::Impl::sections_in_use(const ActiveConfig& active) {
  // A section that only another pipeline stage's layers match is in use, and what is to be said of its layers
  // is said once, by the first rank that has them: two words a section, MAX over the world.
  const std::uint32_t world =
      groups_.world == nullptr ? 1 : static_cast<std::uint32_t>(groups_.world->size());
  const std::uint32_t mine =
      groups_.world == nullptr ? 1 : world - static_cast<std::uint32_t>(groups_.world->rank());
  std::vector<std::uint32_t> used;
  std::vector<std::vector<std::string>> hints;
  for (const ActiveConfig::Section& section : active.sections) {
    used.push_back(static_cast<std::uint32_t>(!section.layers.empty()));
    hints.push_back(number_hints(section));
  }
  for (const std::vector<std::string>& of_section : hints) used.push_back(of_section.empty() ? 0 : mine);
  if (groups_.world != nullptr && groups_.world->size() > 1) {
    CollectiveGuard& guard = guarded_.guard(groups_.world, "control");
    guard.set_iteration(iteration);
    guard.reduce_max_in_frames(used, {.what = "sections in use"});
  }
  for (std::size_t i = 0; i < active.sections.size(); ++i) {
    if (used[active.sections.size() + i] != mine) continue;
    for (const std::string& hint : hints[i]) {
      log.warn("{}:{}:{}: section \"{}\": {}", active.config.source, active.sections[i].config->position.line,
               active.sections[i].config->position.column, active.sections[i].config->name, hint);
    }
  }
  used.resize(active.sections.size());
  return {used.begin(), used.end()};
}

StageLayers DebugSession::Impl::own_stage(const ActiveConfig& active) const {
  StageLayers own;
  own.ranks = groups_.stage == nullptr ? std::vector{own_rank()} : groups_.stage->world_ranks();
  own.names.assign(layer_names_.begin(), layer_names_.end());
  for (const auto& [key, tensor] : free_tensors_) {
    // Where nothing reads it, or where the caller chose its group, a name may be anywhere.
    const bool read = std::ranges::any_of(active.sections, [&](const ActiveConfig::Section& section) {
      return std::ranges::find(section.layers, key.first) != section.layers.end();
    });
    if (tensor->base || !read) continue;
    if (std::ranges::find(own.names, key.first) == own.names.end()) own.names.push_back(key.first);
  }
  own.sections = active.section_layers();
  return own;
}

std::vector<StageLayers> DebugSession::Impl::gather_stages(const ActiveConfig& active) {
  if (!has_other_stages()) return {own_stage(active)};
  // The ranks of a stage have the same layers, so one of each speaks: the lists of a job with thousands of
  // ranks would not fit in memory.
  std::vector<StageLayers> stages;
  std::string problem;
  if (stage_leaders_ != nullptr) {
    for (const std::string& text :
         all_gather_text(*stage_leaders_, to_text(own_stage(active)), {.what = "stages"}))
      stages.push_back(stage_layers_from(text));
    problem = names_of_several_stages(stages);
  } else {
    stages.push_back(own_stage(active));
  }
  CollectiveGuard& guard = guarded_.guard(groups_.stage, "control");
  if (guard.group().size() > 1) {
    std::vector<std::uint32_t> found = {static_cast<std::uint32_t>(!problem.empty())};
    guard.reduce_max_in_frames(found, {.what = "names of several stages"});
    if (found.front() != 0) {
      problem =
          broadcast_text(guard.group(), problem, lowest_of(*groups_.stage), {.what = "names of stages"});
    }
  }
  AMAXSCOPE_CHECK(problem.empty(), ErrorCode::kMismatch, "{}", problem);
  return stages;
}

void DebugSession::Impl::report_idle_sections(const ActiveConfig& active, const std::vector<bool>& used,
                                              const std::vector<StageLayers>& stages) {
  std::vector<std::string> known;
  for (const StageLayers& stage : stages) known.insert(known.end(), stage.names.begin(), stage.names.end());
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < active.sections.size(); ++i) {
    if (used[i]) continue;
    const ConfigSection& section = *active.sections[i].config;
    std::string problem =
        fmt::format("{}:{}:{}: section \"{}\" matched no layer on any rank", active.config.source,
                    section.position.line, section.position.column, section.name);
    const std::vector<std::string> close = nearest(section.name, known, 3);
    if (!close.empty()) problem += fmt::format("; layers are called like {}", fmt::join(close, ", "));
    problems.push_back(std::move(problem));
  }
  if (options_.strict && !problems.empty()) {
    throw Error(ErrorCode::kConfig, fmt::format("{}", fmt::join(problems, "\n")));
  }
  if (!is_world_leader()) return;
  for (const std::string& problem : problems) log.warn("{}", problem);
}

}  // namespace amaxscope

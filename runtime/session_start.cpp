// How a session comes to life: the agreed config, its groups, features and sinks.
#include <fmt/chrono.h>
#include <unistd.h>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "runtime/config/agreed_config.hpp"
#include "runtime/session_impl.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope {

namespace {

int world_rank(const SessionGroups& groups) {
  return groups.world == nullptr
             ? 0
             : groups.world->world_ranks()[static_cast<std::size_t>(groups.world->rank())];
}

Log::Options log_options(const SessionGroups& groups, const Environment& environment) {
  Log::Options options;
  options.console_level = std::max(parse_log_level(environment.log_level), LogLevel::kWarn);
  options.file_level = parse_log_level(environment.log_level);
  if (groups.world != nullptr && groups.world->size() > 1)
    options.prefix = fmt::format("[rank {}] ", world_rank(groups));
  return options;
}

std::string new_run_id() {
  return fmt::format("{:%Y%m%dT%H%M%S}-{}", fmt::gmtime(std::chrono::system_clock::now()), getpid());
}

}  // namespace

SessionGroups SessionGroups::from(const ProcessGroups& groups) {
  return {&groups.world(), &groups.tp(), &groups.dp_cp(), &groups.tp_dp_cp()};
}

DebugSession::Impl::Impl(const FeatureRegistry& feature_registry, const SessionGroups& session_groups,
                         SessionOptions session_options)
    : log(log_options(session_groups, session_options.environment)),
      registry_(feature_registry),
      groups_(session_groups),
      options_(std::move(session_options)),
      guarded_({.deadline = options_.deadline, .clock = nullptr}),
      active_(std::make_unique<ActiveConfig>(Config{}, registry_, guarded_, log, 0)),
      recent_steps_(options_.ring_steps) {
  AMAXSCOPE_CHECK(options_.poll_every.value_or(1) >= 1, ErrorCode::kUsage,
                  "poll_every is {}; it must be at least 1", *options_.poll_every);
  iteration = options_.first_iteration;
  AMAXSCOPE_CHECK(options_.event_dump_bytes >= 0, ErrorCode::kUsage,
                  "event_dump_bytes is {}; it must be at least 0", options_.event_dump_bytes);
  AMAXSCOPE_CHECK(!options_.watch_config || options_.config_path.has_value(), ErrorCode::kUsage,
                  "watch_config needs a config_path: there is no file to watch");
  if (!options_.environment.enabled) return;
  if (options_.dump_on_signal) signal_.emplace();
  const bool configured = options_.config_path.has_value() || options_.config_text.has_value();
  if (!configured && !options_.replaceable_config) return;
  const auto threads =
      static_cast<unsigned>(options_.environment.threads.value_or(static_cast<int>(bound_cores())));
  if (threads > 1) workers_ = std::make_shared<WorkerPool>(threads);
  start();
}

void DebugSession::Impl::open_flight() {
  flight_ = options_.flight;
  own_flight_ = flight_ == nullptr;
  if (own_flight_) {
    const int ranks = groups_.world == nullptr ? 1 : groups_.world->size();
    try {
      if (!options_.log_dir.empty()) {
        flight_ = FlightRecorder::in_directory(options_.log_dir / "flight", own_rank(), ranks);
      }
    } catch (const Error& error) {
      log.warn("no flight record of this rank: {}", error.what());
    }
    if (flight_ == nullptr) flight_ = FlightRecorder::in_memory(own_rank(), ranks, {});
  }
  flight_->set_iteration(iteration);
  guarded_.record_into(flight_);
}

void DebugSession::Impl::start() {
  open_flight();
  CollectiveGuard* control = groups_.world == nullptr ? nullptr : &guarded_.guard(groups_.world, "control");
  if (control != nullptr) control->set_iteration(iteration);
  std::optional<std::string> text = options_.config_text;
  if (!text && !options_.config_path) text.emplace();
  active_ = std::make_unique<ActiveConfig>(load_agreed_config(control, options_.config_path, text, registry_),
                                           registry_, guarded_, log, options_.event_dump_bytes);
  if (is_world_leader()) {
    for (const std::string& warning : active_->config.warnings) log.warn("{}", warning);
  }

  placement_ = {.world = groups_.world,
                .tp = groups_.tp,
                .dp_cp = groups_.dp_cp,
                .stage = groups_.stage,
                .count_every_replica = options_.replica_counting == ReplicaCounting::kTe};
  if (!active_->any_feature() && !accepts_changes()) return;

  enabled = true;
  run_.run_id = new_run_id();
  if (control != nullptr && control->group().size() > 1) {
    run_.run_id = broadcast_text(control->group(), run_.run_id, /*root=*/0, {.what = "run id"});
  }
  join_stage_leaders();
  if (groups_.tp != nullptr && groups_.tp->size() > 1) {
    CollectiveGuard& guard = guarded_.guard(groups_.tp, "amax");
    guard.set_iteration(iteration);
    tp_amax_ = std::make_unique<AmaxReducer>(guard, [this] { active_->tp_agreement->settle(); });
  }
  make_tp_agreement(*active_);
  open_sinks();
  attach_features(*active_);
  start_poll();
  if (options_.watch_config && is_world_leader()) {
    watch_.emplace(options_.config_path.value(), active_->config.text);
  }
  write_run();
}

void DebugSession::Impl::make_tp_agreement(ActiveConfig& active) {
  // The stage's group is made now, while every rank is here; its list is what tensor-parallel ranks compare,
  // too.
  const RegistrationList& list = active.stats.registrations(groups_.stage);
  if (tp_amax_ == nullptr) return;
  active.tp_agreement = std::make_unique<RegistrationAgreement>(guarded_.guard(groups_.tp, "amax"), list);
}

int DebugSession::Impl::own_rank() const { return world_rank(groups_); }

void DebugSession::Impl::attach_features(ActiveConfig& active) {
  active.stats.set_groups(placement_);
  const auto ranks_of = [this](const Communicator* group) {
    return group == nullptr ? std::vector{own_rank()} : group->world_ranks();
  };
  FeatureServices services{.report = {},
                           .warn = [this](const std::string& message) { log.warn("{}", message); },
                           .scalar =
                               [this](std::string_view name, double value) {
                                 if (is_world_leader()) scalars_.insert_or_assign(std::string(name), value);
                               },
                           .log_dir = options_.log_dir,
                           .world_rank = own_rank(),
                           .tp_ranks = ranks_of(groups_.tp),
                           .dp_ranks = ranks_of(groups_.dp_cp),
                           .stage_ranks = ranks_of(groups_.stage)};
  active.for_each_feature([&](Feature& feature) {
    services.report = [this, &feature](Finding finding) { report(&feature, std::move(finding)); };
    active.stats.set_owner(&feature);
    feature.attach(services);
    feature.register_session(active.stats);
  });
  if (active.event_dump != nullptr) active.event_dump->attach(services);
}

void DebugSession::Impl::open_sinks() {
  sinks_ = options_.extra_sinks;
  if (options_.log_dir.empty()) return;
  const int rank = world_rank(groups_);
  const std::filesystem::path messages = options_.log_dir / "nvdlfw_inspect_logs";
  std::error_code error;
  std::filesystem::create_directories(messages, error);
  AMAXSCOPE_CHECK(!error, ErrorCode::kIo, "{}: cannot be made: {}", messages.string(), error.message());
  log.add_file(messages / fmt::format("nvdlfw_inspect_globalrank-{}.log", rank));
  sinks_.push_back(make_text_sink(options_.log_dir, rank));
  sinks_.push_back(make_json_lines_sink(options_.log_dir, rank,
                                        {.every_rank = options_.log_all_ranks, .run_id = run_.run_id}));
}

void DebugSession::Impl::write_run() {
  if (options_.log_dir.empty() || !is_world_leader()) return;
  if (run_.config_changes.empty()) {
    run_.config_source = active_->config.source;
    run_.config_text = active_->config.text;
    run_.config_digest = text_digest(active_->config.text);
    run_.alters_numerics = active_->altering();
    run_.section_layers = active_->layers_of_all_stages();
  }
  run_.world_size = groups_.world == nullptr ? 1 : groups_.world->size();
  run_.parallel = {{"tp", groups_.tp == nullptr ? 1 : groups_.tp->size()},
                   {"dp_cp", groups_.dp_cp == nullptr ? 1 : groups_.dp_cp->size()},
                   {"pp", has_other_stages() ? groups_.world->size() / groups_.stage->size() : 1}};
  run_.options = options_.run_options;
  run_.options["failure_policy"] = failure_policy() == FailurePolicy::kDetach ? "detach" : "abort";
  run_.options["amax_scope"] = to_string(options_.amax_scope);
  run_.options["replica_counting"] = options_.replica_counting == ReplicaCounting::kTe ? "te" : "once";
  run_.first_iteration = options_.first_iteration;
  if (run_.start == std::chrono::system_clock::time_point{}) run_.start = std::chrono::system_clock::now();
  write_run_file(options_.log_dir, run_);
}

bool DebugSession::Impl::is_world_leader() const noexcept {
  return groups_.world == nullptr || groups_.world->rank() == 0;
}

bool DebugSession::Impl::alters_numerics() const { return !active_->altering().empty(); }

FailurePolicy DebugSession::Impl::failure_policy() const {
  return options_.failure_policy.value_or(alters_numerics() ? FailurePolicy::kAbort : FailurePolicy::kDetach);
}

}  // namespace amaxscope

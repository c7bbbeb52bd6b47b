#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "features/builtin.hpp"
#include "features/presets.hpp"

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstOptions = offsetof(amaxscope_options, preset);

std::string preset_text(std::string_view name) {
  const Preset* const preset = find_preset(name);
  AMAXSCOPE_CHECK(preset != nullptr, ErrorCode::kUsage, "options.preset is \"{}\"; there are {}", name,
                  preset_names());
  return std::string(preset->yaml);
}

SessionOptions session_options(const amaxscope_options& given) {
  SessionOptions result;
  const int configs =
      (given.config_path != nullptr) + (given.config_text != nullptr) + (given.preset != nullptr);
  AMAXSCOPE_CHECK(configs <= 1, ErrorCode::kUsage,
                  "of options.config_path, options.config_text and options.preset {} are given; one of them "
                  "is the config",
                  configs);
  if (given.config_path != nullptr) result.config_path = given.config_path;
  if (given.config_text != nullptr) result.config_text = given.config_text;
  if (given.preset != nullptr) result.config_text = preset_text(given.preset);
  if (given.log_dir != nullptr) result.log_dir = given.log_dir;
  result.first_iteration = given.first_iteration;
  if (given.deadline_seconds != 0.0) {
    result.deadline = milliseconds_of(given.deadline_seconds, "options.deadline_seconds");
  }
  switch (enumerator<amaxscope_on_failure>(given.on_failure, AMAXSCOPE_ABORT, "options.on_failure")) {
    case AMAXSCOPE_BY_CONFIG:
      break;
    case AMAXSCOPE_DETACH:
      result.failure_policy = FailurePolicy::kDetach;
      break;
    case AMAXSCOPE_ABORT:
      result.failure_policy = FailurePolicy::kAbort;
      break;
  }
  result.amax_scope = enumerator<AmaxScope>(given.amax_scope, AMAXSCOPE_SCALE_LOCAL, "options.amax_scope");
  AMAXSCOPE_CHECK(given.poll_every >= 0, ErrorCode::kUsage,
                  "options.poll_every is {}; it must not be negative", given.poll_every);
  if (given.poll_every > 0) result.poll_every = given.poll_every;
  result.watch_config = given.watch_config != 0;
  result.replaceable_config = given.replaceable_config != 0;
  result.dump_on_signal = given.dump_on_signal != 0;
  result.strict = given.strict != 0;
  result.log_all_ranks = given.log_all_ranks != 0;
  if (given.count_replicas != 0) result.replica_counting = ReplicaCounting::kTe;
  result.environment = Environment::from_process();
  return result;
}

Layout layout_of(amaxscope_layout layout) {
  return enumerator<Layout>(layout, AMAXSCOPE_PARTIAL_SUM, "layout");
}

int size_or_one(int size, std::string_view name) {
  AMAXSCOPE_CHECK(size >= 0, ErrorCode::kUsage, "options.{} is {}; it must not be negative", name, size);
  return size == 0 ? 1 : size;
}

void make_groups(const amaxscope_options& given, amaxscope_session& session) {
  const ParallelSizes sizes{.tp = size_or_one(given.tp_size, "tp_size"),
                            .cp = size_or_one(given.cp_size, "cp_size"),
                            .pp = size_or_one(given.pp_size, "pp_size")};
  if (given.world != nullptr) {
    session.groups.emplace(*given.world->communicator, sizes);
    return;
  }
  AMAXSCOPE_CHECK(sizes.tp == 1 && sizes.cp == 1 && sizes.pp == 1, ErrorCode::kUsage,
                  "options.world is NULL, which is one rank, and tp_size {} cp_size {} pp_size {} need more",
                  sizes.tp, sizes.cp, sizes.pp);
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_open(const amaxscope_options* options, amaxscope_session** session) {
  return capi::call([&] {
    amaxscope_session*& result = capi::required(session, "session");
    const amaxscope_options given = capi::taken(options, capi::kFirstOptions, "options");
    SessionOptions session_options = capi::session_options(given);
    auto made = std::make_unique<amaxscope_session>();
    made->registry = builtin_features();
    capi::make_groups(given, *made);
    made->session.emplace(made->registry, made->groups ? SessionGroups::from(*made->groups) : SessionGroups{},
                          std::move(session_options));
    result = made.release();
  });
}

amaxscope_status amaxscope_close(amaxscope_session* session) {
  const std::unique_ptr<amaxscope_session> owned(session);
  if (session == nullptr) return AMAXSCOPE_OK;
  return capi::call([&] { session->session->close(); });
}

amaxscope_status amaxscope_freeze(amaxscope_session* session) {
  return capi::call([&] { capi::required(session, "session").session->freeze(); });
}

amaxscope_status amaxscope_step(amaxscope_session* session) {
  return capi::call([&] {
    amaxscope_session& own = capi::required(session, "session");
    if (own.delayed) own.delayed->update();
    own.session->step();
  });
}

int64_t amaxscope_iteration(const amaxscope_session* session) {
  return session == nullptr ? 0 : session->session->iteration();
}

int amaxscope_enabled(const amaxscope_session* session) {
  return session != nullptr && session->session->enabled() ? 1 : 0;
}

const char* amaxscope_write_failure(const amaxscope_session* session) {
  if (session == nullptr || !session->session->write_failure()) return nullptr;
  return session->session->write_failure()->c_str();
}

amaxscope_status amaxscope_scalar(amaxscope_session* session, const char* name, double value) {
  return capi::call(
      [&] { capi::required(session, "session").session->scalar(&capi::required(name, "name"), value); });
}

amaxscope_status amaxscope_weights_are_final(amaxscope_session* session) {
  return capi::call([&] { capi::required(session, "session").session->weights_are_final(); });
}

amaxscope_status amaxscope_replace_config(amaxscope_session* session, const char* text) {
  return capi::call(
      [&] { capi::required(session, "session").session->replace_config(&capi::required(text, "text")); });
}

amaxscope_status amaxscope_set_reduction_group(amaxscope_session* session, amaxscope_group* group) {
  return capi::call([&] {
    capi::required(session, "session")
        .session->set_reduction_group(group == nullptr ? nullptr : group->communicator.get());
  });
}

amaxscope_status amaxscope_observe(amaxscope_session* session, const char* name, const char* kind,
                                   const amaxscope_view* x, amaxscope_layout layout,
                                   const amaxscope_moment* moment) {
  return capi::call([&] {
    capi::required(session, "session")
        .session->observe(&capi::required(name, "name"), &capi::required(kind, "kind"), capi::view_of(x, "x"),
                          capi::layout_of(layout), capi::moment_of(moment));
  });
}

int amaxscope_observes_update(amaxscope_session* session, const char* name, amaxscope_layout layout) {
  int observes = 0;
  static_cast<void>(capi::call([&] {
    observes = capi::required(session, "session")
                       .session->observes_update(&capi::required(name, "name"), capi::layout_of(layout))
                   ? 1
                   : 0;
  }));
  return observes;
}

amaxscope_status amaxscope_observe_update(amaxscope_session* session, const char* name,
                                          const amaxscope_view* before, const amaxscope_view* update,
                                          amaxscope_layout layout,
                                          const amaxscope_view* normalized_gradient) {
  return capi::call([&] {
    const std::optional<TensorView> normalized =
        capi::optional_view_of(normalized_gradient, "normalized_gradient");
    capi::required(session, "session")
        .session->observe_update(&capi::required(name, "name"), capi::view_of(before, "before"),
                                 capi::view_of(update, "update"), capi::layout_of(layout),
                                 normalized ? &*normalized : nullptr);
  });
}

}  // extern "C"

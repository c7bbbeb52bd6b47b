#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "features/builtin.hpp"

namespace amaxscope::capi {

namespace {

constexpr std::size_t kFirstOptions = sizeof(amaxscope_options);

SessionOptions session_options(const amaxscope_options& given) {
  SessionOptions result;
  AMAXSCOPE_CHECK(given.config_path == nullptr || given.config_text == nullptr, ErrorCode::kUsage,
                  "options.config_path and options.config_text are both given; one of them is the config");
  if (given.config_path != nullptr) result.config_path = given.config_path;
  if (given.config_text != nullptr) result.config_text = given.config_text;
  if (given.log_dir != nullptr) result.log_dir = given.log_dir;
  result.first_iteration = given.first_iteration;
  AMAXSCOPE_CHECK(given.deadline_seconds >= 0.0 && given.deadline_seconds <= 1e9, ErrorCode::kUsage,
                  "options.deadline_seconds is {}; it must not be negative", given.deadline_seconds);
  if (given.deadline_seconds > 0.0) {
    result.deadline = std::chrono::milliseconds(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(given.deadline_seconds * 1e3)));
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
  result.environment = Environment::from_process();
  return result;
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

void require_no_recipe_state(const amaxscope_session& session) {
  for (const auto& layer : session.layers) {
    const RecipeKind recipe = layer->description.recipe;
    AMAXSCOPE_CHECK(recipe != RecipeKind::kDelayed && recipe != RecipeKind::kNvfp4, ErrorCode::kUsage,
                    "layer {}: the state of its recipe, {}, cannot be saved and loaded through the C API",
                    layer->description.name, to_string(recipe));
  }
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

amaxscope_status amaxscope_save_state(amaxscope_session* session, const char* directory) {
  return capi::call([&] {
    const amaxscope_session& own = capi::required(session, "session");
    capi::require_no_recipe_state(own);
    own.session->save_state(&capi::required(directory, "directory"));
  });
}

amaxscope_status amaxscope_load_state(amaxscope_session* session, const char* directory) {
  return capi::call([&] {
    amaxscope_session& own = capi::required(session, "session");
    capi::require_no_recipe_state(own);
    own.session->load_state(&capi::required(directory, "directory"));
  });
}

amaxscope_status amaxscope_observe(amaxscope_session* session, const char* name, const char* kind,
                                   const amaxscope_view* x, amaxscope_layout layout,
                                   const amaxscope_moment* moment) {
  return capi::call([&] {
    capi::required(session, "session")
        .session->observe(&capi::required(name, "name"), &capi::required(kind, "kind"), capi::view_of(x, "x"),
                          capi::enumerator<Layout>(layout, AMAXSCOPE_PARTIAL_SUM, "layout"),
                          capi::moment_of(moment));
  });
}

}  // extern "C"

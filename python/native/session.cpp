#include "python/native/session.hpp"

#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "features/presets.hpp"
#include "python/native/view.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

const char* text_or_null(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

/// What a session is opened with, by the names of Session in session.py.
std::unique_ptr<Session> open(const std::optional<std::string>& config_path,
                              const std::optional<std::string>& config_text,
                              const std::optional<std::string>& preset,
                              const std::optional<std::string>& log_dir, const py::object& world,
                              const py::dict& more) {
  AMAXSCOPE_CHECK((config_path ? 1 : 0) + (config_text ? 1 : 0) + (preset ? 1 : 0) <= 1, ErrorCode::kUsage,
                  "config, config_text and preset: one of them is the config");
  const Group* const group = world.is_none() ? nullptr : &world.cast<const Group&>();
  const auto flag = [&](const char* name) { return more[name].cast<bool>() ? 1 : 0; };
  amaxscope_options options{};
  options.size = sizeof options;
  options.config_path = text_or_null(config_path);
  options.config_text = text_or_null(config_text);
  options.preset = text_or_null(preset);
  options.log_dir = text_or_null(log_dir);
  options.first_iteration = more["first_iteration"].cast<std::int64_t>();
  options.deadline_seconds = more["deadline"].cast<double>();
  options.on_failure = meant(kOnFailure, more["on_failure"].cast<std::string>(), "on_failure");
  options.amax_scope = meant(kAmaxScopes, more["amax_scope"].cast<std::string>(), "amax_scope");
  options.world = group == nullptr ? nullptr : group->handle.get();
  options.tp_size = more["tp_size"].cast<int>();
  options.cp_size = more["cp_size"].cast<int>();
  options.pp_size = more["pp_size"].cast<int>();
  options.poll_every = more["poll_every"].cast<std::int64_t>();
  options.watch_config = flag("watch_config");
  options.replaceable_config = flag("replaceable_config");
  options.dump_on_signal = flag("dump_on_signal");
  options.strict = flag("strict");
  options.log_all_ranks = flag("log_all_ranks");
  options.count_replicas = flag("count_replicas");
  const std::shared_ptr<Raised> raised = group == nullptr ? std::make_shared<Raised>() : group->raised;
  amaxscope_session* handle = nullptr;
  run(raised.get(), [&] { return amaxscope_open(&options, &handle); });
  return std::make_unique<Session>(handle, world, raised);
}

py::list presets_list() {
  py::list result;
  for (const Preset& preset : presets()) {
    result.append(
        py::make_tuple(std::string(preset.name), std::string(preset.summary), std::string(preset.yaml)));
  }
  return result;
}

std::vector<int> tp_ranks(const Session& session) {
  const amaxscope_session& own = session.handle();
  return own.groups ? own.groups->tp().world_ranks() : std::vector<int>{0};
}

}  // namespace

void Session::close() {
  if (open_ == nullptr) return;
  AMAXSCOPE_CHECK(!busy_, ErrorCode::kUsage, "the session is in use; it cannot be closed");
  const std::shared_ptr<OpenSession> session = std::exchange(open_, nullptr);
  run(raised_.get(), [&] { session->handle->session->close(); });
}

void add_session(py::module_& module) {
  py::class_<Session, std::shared_ptr<Session>>(module, "Session")
      .def(py::init(&open))
      .def("close", &Session::close)
      .def("abandon", &Session::abandon)
      .def(
          "freeze",
          [](Session& own) { own.use([](amaxscope_session* session) { return amaxscope_freeze(session); }); })
      .def("step",
           [](Session& own) { own.use([](amaxscope_session* session) { return amaxscope_step(session); }); })
      .def("weights_are_final",
           [](Session& own) {
             own.use([](amaxscope_session* session) { return amaxscope_weights_are_final(session); });
           })
      .def("scalar",
           [](Session& own, const std::string& name, double value) {
             own.use(
                 [&](amaxscope_session* session) { return amaxscope_scalar(session, name.c_str(), value); });
           })
      .def("save_state",
           [](Session& own, const std::string& directory) {
             own.use([&](amaxscope_session* session) {
               return amaxscope_save_state(session, directory.c_str());
             });
           })
      .def("load_state",
           [](Session& own, const std::string& directory) {
             own.use([&](amaxscope_session* session) {
               return amaxscope_load_state(session, directory.c_str());
             });
           })
      .def("observe",
           [](Session& own, const std::string& name, const std::string& kind, const View& x,
              const std::string& layout, const std::string& phase, int microbatch) {
             const amaxscope_layout where = meant(kLayouts, layout, "layout");
             const amaxscope_moment when = moment(phase, microbatch);
             own.use([&](amaxscope_session* session) {
               return amaxscope_observe(session, name.c_str(), kind.c_str(), &x.matrix, where, &when);
             });
           })
      .def("replace_config",
           [](Session& own, const std::string& text) {
             own.use(
                 [&](amaxscope_session* session) { return amaxscope_replace_config(session, text.c_str()); });
           })
      .def("observes_update",
           [](Session& own, const std::string& name, const std::string& layout) {
             const amaxscope_layout where = meant(kLayouts, layout, "layout");
             bool observes = false;
             own.use([&](amaxscope_session* session) {
               observes = amaxscope_observes_update(session, name.c_str(), where) != 0;
             });
             return observes;
           })
      .def("observe_update",
           [](Session& own, const std::string& name, const View& before, const View& update,
              const std::string& layout, const View* normalized_gradient) {
             const amaxscope_layout where = meant(kLayouts, layout, "layout");
             own.use([&](amaxscope_session* session) {
               return amaxscope_observe_update(
                   session, name.c_str(), &before.matrix, &update.matrix, where,
                   normalized_gradient == nullptr ? nullptr : &normalized_gradient->matrix);
             });
           })
      .def_property_readonly("is_open", &Session::is_open)
      .def_property_readonly("iteration",
                             [](const Session& own) { return amaxscope_iteration(&own.handle()); })
      .def_property_readonly("enabled",
                             [](const Session& own) { return amaxscope_enabled(&own.handle()) != 0; })
      .def_property_readonly("write_failure",
                             [](const Session& own) -> std::optional<std::string> {
                               const char* const text = amaxscope_write_failure(&own.handle());
                               return text == nullptr ? std::nullopt : std::optional<std::string>(text);
                             })
      .def_property_readonly("tp_ranks", &tp_ranks);
  module.def("presets", &presets_list);
}

}  // namespace amaxscope::python

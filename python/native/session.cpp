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

std::string text_of_preset(const std::string& name) {
  const Preset* const preset = find_preset(name);
  AMAXSCOPE_CHECK(preset != nullptr, ErrorCode::kUsage, "there is no preset \"{}\"; there are {}", name,
                  preset_names());
  return std::string(preset->yaml);
}

std::unique_ptr<Session> open(const std::optional<std::string>& config_path,
                              std::optional<std::string> config_text,
                              const std::optional<std::string>& preset,
                              const std::optional<std::string>& log_dir, std::int64_t first_iteration,
                              double deadline, const std::string& on_failure, const std::string& amax_scope,
                              const py::object& world, int tp_size, int cp_size, int pp_size) {
  AMAXSCOPE_CHECK((config_path ? 1 : 0) + (config_text ? 1 : 0) + (preset ? 1 : 0) <= 1, ErrorCode::kUsage,
                  "config, config_text and preset: one of them is the config");
  if (preset) config_text = text_of_preset(*preset);
  const Group* const group = world.is_none() ? nullptr : &world.cast<const Group&>();
  amaxscope_options options{};
  options.size = sizeof options;
  options.config_path = text_or_null(config_path);
  options.config_text = text_or_null(config_text);
  options.log_dir = text_or_null(log_dir);
  options.first_iteration = first_iteration;
  options.deadline_seconds = deadline;
  options.on_failure = meant(kOnFailure, on_failure, "on_failure");
  options.amax_scope = meant(kAmaxScopes, amax_scope, "amax_scope");
  options.world = group == nullptr ? nullptr : group->handle.get();
  options.tp_size = tp_size;
  options.cp_size = cp_size;
  options.pp_size = pp_size;
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
  if (handle_ == nullptr) return;
  AMAXSCOPE_CHECK(!busy_, ErrorCode::kUsage, "the session is in use; it cannot be closed");
  amaxscope_session* const handle = std::exchange(handle_, nullptr);
  run(raised_.get(), [&] { return amaxscope_close(handle); });
  kept_ = py::list();
}

void Session::abandon() {
  amaxscope_session* const handle = std::exchange(handle_, nullptr);
  {
    const py::gil_scoped_release release;
    delete handle;
  }
  kept_ = py::list();
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

#include "python/native/errors.hpp"

namespace amaxscope::python {

namespace {

py::object exception_of(amaxscope_status status) {
  const py::object kinds = py::module_::import("amaxscope.errors").attr("BY_STATUS");
  const py::object kind = kinds[py::int_(static_cast<int>(status))];
  return kind(amaxscope_last_error());
}

}  // namespace

void Raised::keep(py::error_already_set& error) { exception_ = error.value(); }

void Raised::raise_if_exit() {
  if (!exception_ || PyObject_IsInstance(exception_.ptr(), PyExc_Exception) != 0) return;
  const py::object exception = std::exchange(exception_, {});
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

void Raised::become_cause_of(const py::object& exception) {
  if (!exception_) return;
  PyException_SetCause(exception.ptr(), std::exchange(exception_, {}).release().ptr());
}

void check(amaxscope_status status, Raised* raised) {
  if (raised != nullptr) raised->raise_if_exit();
  if (status == AMAXSCOPE_OK) return;
  const py::object exception = exception_of(status);
  if (raised != nullptr) raised->become_cause_of(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

void register_errors() {
  py::register_exception_translator([](std::exception_ptr error) {
    amaxscope_status status = AMAXSCOPE_OK;
    try {
      std::rethrow_exception(error);
    } catch (const Error&) {
      status = capi::failed_by_exception();
    }
    try {
      check(status, nullptr);
    } catch (py::error_already_set& raised) {
      raised.restore();
    }
  });
}

}  // namespace amaxscope::python

// Errors of the library as exceptions of Python (amaxscope/errors.py), and running the library without the
// interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "capi/calls.hpp"

namespace amaxscope::python {

namespace py = pybind11;

/// What a callback in Python raised while the library ran: the library goes on with an Error, and what it
/// ends with is raised from this. Shared by a group and all that were split from it. With the interpreter's
/// lock only.
class Raised {
 public:
  /// Keeps the exception that is being handled.
  void keep(py::error_already_set& error);
  /// Raises a kept KeyboardInterrupt or SystemExit, whatever the library made of it.
  void raise_if_exit();
  /// Sets the kept exception as the cause of another one, and forgets it.
  void become_cause_of(const py::object& exception);

 private:
  py::object exception_;
};

/// Raises the exception of a status with the text of amaxscope_last_error(). raised may be null.
void check(amaxscope_status status, Raised* raised);
/// amaxscope::Error that leaves a function of this module becomes the same exceptions.
void register_errors();

/// Runs work, which returns a status or throws as C++ does, without the interpreter's lock.
template <class Work>
void run(Raised* raised, Work&& work) {
  amaxscope_status status = AMAXSCOPE_OK;
  {
    const py::gil_scoped_release release;
    if constexpr (std::is_same_v<std::invoke_result_t<Work>, amaxscope_status>) {
      status = work();
    } else {
      status = capi::call(std::forward<Work>(work));
    }
  }
  check(status, raised);
}

}  // namespace amaxscope::python

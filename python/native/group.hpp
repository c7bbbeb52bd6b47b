// A group of ranks over an object of Python that has the collectives (amaxscope/groups.py says which
// methods).
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "capi/handles.hpp"
#include "python/native/errors.hpp"

namespace amaxscope::python {

struct Group {
  std::shared_ptr<Raised> raised;
  std::unique_ptr<amaxscope_group> handle;
};

void add_group(py::module_& module);

}  // namespace amaxscope::python

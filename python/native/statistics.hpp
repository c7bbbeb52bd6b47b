// Sums of statistics, without a session.
#pragma once

#include <pybind11/pybind11.h>

namespace amaxscope::python {

void add_statistics(pybind11::module_& module);

}  // namespace amaxscope::python

// The module amaxscope._native.
#include <pybind11/pybind11.h>

#include "capi/amaxscope.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "What of amaxscope is compiled. Use the package amaxscope.";
  module.attr("version") = amaxscope_version();
}

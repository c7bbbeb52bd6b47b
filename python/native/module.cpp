// The module amaxscope._native. What users see of it, with its documentation, is in the Python files beside
// it.
#include "capi/amaxscope.h"
#include "python/native/array.hpp"
#include "python/native/errors.hpp"
#include "python/native/group.hpp"
#include "python/native/kernels.hpp"
#include "python/native/quantized.hpp"
#include "python/native/session.hpp"
#include "python/native/statistics.hpp"
#include "python/native/view.hpp"

PYBIND11_MODULE(_native, module) {
  using namespace amaxscope::python;  // NOLINT(google-build-using-namespace): one function
  module.doc() = "What of amaxscope is compiled. Use the package amaxscope.";
  module.attr("version") = amaxscope_version();
  register_errors();
  add_view(module);
  add_array(module);
  add_group(module);
  add_quantized(module);
  add_session(module);
  add_layer(module);
  add_kernels(module);
  add_statistics(module);
}

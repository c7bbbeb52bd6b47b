// Operands of GEMMs as Python holds them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "capi/handles.hpp"

namespace amaxscope::python {

namespace py = pybind11;

struct Quantized {
  Quantized(std::shared_ptr<QuantizedTensor> tensor, py::object borrowed)
      : handle{.tensor = std::move(tensor)}, owner(std::move(borrowed)) {}

  amaxscope_quantized handle;
  py::object owner;  ///< of the memory that an operand in high precision goes on pointing to
  /// Held by every array that points into this: what they point to is not freed.
  std::shared_ptr<int> lease = std::make_shared<int>(0);
};

void add_quantized(py::module_& module);

}  // namespace amaxscope::python

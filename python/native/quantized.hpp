// Operands of GEMMs as Python holds them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "capi/handles.hpp"

namespace amaxscope::python {

namespace py = pybind11;

struct Quantized {
  /// of: kept as long as this; null without a session.
  Quantized(std::shared_ptr<QuantizedTensor> tensor, py::object borrowed, std::shared_ptr<void> of)
      : session(std::move(of)), handle{.tensor = std::move(tensor)}, owner(std::move(borrowed)) {}

  std::shared_ptr<void> session;  ///< whose threads compute on the tensor
  amaxscope_quantized handle;
  py::object owner;  ///< of the memory that an operand in high precision goes on pointing to
  /// Held by every array that points into this: what they point to is not freed.
  std::shared_ptr<int> lease = std::make_shared<int>(0);
};

void add_quantized(py::module_& module);

}  // namespace amaxscope::python

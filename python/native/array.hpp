// A tensor of the library's, as Python reads it: through the buffer protocol, DLPack, or a pointer.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "core/tensor.hpp"
#include "python/native/view.hpp"

namespace amaxscope::python {

struct Array {
  /// Owns its memory.
  explicit Array(Tensor tensor);
  /// Memory of something else, which `owner` keeps, read-only. lease is held as long as the array lives.
  Array(const TensorView& view, py::object owner, std::shared_ptr<void> lease);

  TensorView view;
  std::shared_ptr<Tensor> own;  ///< null: somebody else's
  py::object owner;
  std::shared_ptr<void> lease;

  [[nodiscard]] bool writable() const noexcept { return own != nullptr; }
};

void add_array(py::module_& module);

}  // namespace amaxscope::python

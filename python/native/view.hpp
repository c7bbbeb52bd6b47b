// Somebody else's memory as a matrix: how every tensor comes in.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capi/amaxscope.h"

namespace amaxscope::python {

namespace py = pybind11;

struct View {
  amaxscope_view matrix{};
  std::vector<std::int64_t> shape;
  bool writable = true;
  py::object owner;  ///< kept alive with the view; None: nobody

  /// For a function that writes. Throws Error(kTensor) naming the argument when the memory is read-only.
  [[nodiscard]] amaxscope_view* to_write(std::string_view name) {
    require_writable(name);
    return &matrix;
  }

 private:
  void require_writable(std::string_view name) const;
};

/// strides in elements, none: contiguous. All dimensions but the last are one, of rows. Throws Error(kTensor)
/// naming the tensor, with shape and strides, when its rows do not lie one after the other at one distance.
View make_view(std::uintptr_t pointer, const std::string& dtype, std::vector<std::int64_t> shape,
               const std::optional<std::vector<std::int64_t>>& strides, bool writable, py::object owner,
               const std::string& name);
void add_view(py::module_& module);

}  // namespace amaxscope::python

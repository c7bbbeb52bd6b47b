#include "python/native/array.hpp"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "python/native/dlpack.hpp"
#include "python/native/errors.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

struct BufferType {
  const char* format;  ///< of Python's struct module
  py::ssize_t bytes;
  dlpack::DataType dlpack;
};

/// Codes are bytes, and bf16 in a buffer is its bits in a u16: neither has a letter there.
BufferType buffer_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {"d", 8, {2, 64, 1}};
    case DType::kF32:
      return {"f", 4, {2, 32, 1}};
    case DType::kF16:
      return {"e", 2, {2, 16, 1}};
    case DType::kBF16:
      return {"H", 2, {4, 16, 1}};
    case DType::kU32:
      return {"I", 4, {1, 32, 1}};
    case DType::kI32:
      return {"i", 4, {0, 32, 1}};
    case DType::kU64:
      return {"Q", 8, {1, 64, 1}};
    case DType::kI64:
      return {"q", 8, {0, 64, 1}};
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kE2M1:
    case DType::kU8:
      break;
  }
  return {"B", 1, {1, 8, 1}};
}

/// Of the elements of a buffer: two FP4 codes are one.
std::vector<std::int64_t> buffer_shape(const Array& array) {
  const std::span<const std::int64_t> extents = array.view.shape().extents();
  std::vector<std::int64_t> shape(extents.begin(), extents.end());
  if (array.view.dtype() == DType::kE2M1 && !shape.empty()) shape.back() = (shape.back() + 1) / 2;
  return shape;
}

py::buffer_info buffer_of(const Array& array) {
  const BufferType type = buffer_type(array.view.dtype());
  const std::vector<std::int64_t> shape = buffer_shape(array);
  std::vector<py::ssize_t> strides(shape.size(), type.bytes);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return {const_cast<void*>(array.view.data()),
          type.bytes,
          type.format,
          static_cast<py::ssize_t>(shape.size()),
          std::vector<py::ssize_t>(shape.begin(), shape.end()),
          std::move(strides),
          !array.writable()};
}

/// What a consumer of DLPack borrows: the array, and where its shape is.
struct Lent {
  py::object array;
  std::vector<std::int64_t> shape;
  dlpack::Tensor tensor(const Array& of) {
    const BufferType type = buffer_type(of.view.dtype());
    return {const_cast<void*>(of.view.data()),
            {dlpack::kCpu, 0},
            static_cast<std::int32_t>(shape.size()),
            type.dlpack,
            shape.data(),
            nullptr,
            0};
  }
};

/// The consumer may be anywhere, without the interpreter's lock.
void give_back(Lent* lent) {
  const py::gil_scoped_acquire lock;
  delete lent;
}

template <class Managed>
py::capsule capsule_of(Managed* managed, const char* name) {
  return py::capsule(managed, name, [](PyObject* capsule) {
    const char* const own = PyCapsule_GetName(capsule);
    if (own == nullptr || std::strncmp(own, "used", 4) == 0) return;  // a consumer has it
    auto* const unused = static_cast<Managed*>(PyCapsule_GetPointer(capsule, own));
    unused->deleter(unused);
  });
}

py::capsule to_dlpack(const py::object& self, const std::optional<std::pair<int, int>>& max_version) {
  const auto& array = self.cast<const Array&>();
  auto lent = std::make_unique<Lent>(Lent{.array = self, .shape = buffer_shape(array)});
  const dlpack::Tensor tensor = lent->tensor(array);
  if (max_version && max_version->first >= 1) {
    auto* const managed = new dlpack::ManagedTensorVersioned{{1, 0},
                                                             lent.release(),
                                                             [](dlpack::ManagedTensorVersioned* own) {
                                                               give_back(static_cast<Lent*>(own->context));
                                                               delete own;
                                                             },
                                                             array.writable() ? 0 : dlpack::kReadOnly,
                                                             tensor};
    return capsule_of(managed, "dltensor_versioned");
  }
  if (!array.writable()) {
    throw py::buffer_error(
        "this array is read-only, which DLPack before 1.0 cannot say: hand in array.copy()");
  }
  auto* const managed = new dlpack::ManagedTensor{tensor, lent.release(), [](dlpack::ManagedTensor* own) {
                                                    give_back(static_cast<Lent*>(own->context));
                                                    delete own;
                                                  }};
  return capsule_of(managed, "dltensor");
}

Tensor copy_of(const TensorView& view) {
  Tensor copy(view.dtype(), view.shape());
  if (view.bytes() != 0) std::memcpy(copy.mutable_view().data(), view.data(), view.bytes());
  return copy;
}

/// The elements of any strided memory one after the other.
Array contiguous_copy(std::uintptr_t pointer, const std::string& dtype,
                      const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  const DType type = meant(kDTypes, dtype, "the dtype");
  AMAXSCOPE_CHECK(bits_per_element(type) >= 8 && strides.size() == shape.size(), ErrorCode::kTensor,
                  "a tensor of {} with {} dimensions and {} strides cannot be copied by element", dtype,
                  shape.size(), strides.size());
  Tensor result(type, Shape(std::span(shape)));
  const auto bytes = static_cast<std::size_t>(bits_per_element(type) / 8);
  auto* out = static_cast<std::byte*>(result.mutable_view().data());
  const auto* const in = reinterpret_cast<const std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    std::memcpy(out, in + offset * static_cast<std::int64_t>(bytes), bytes);
    out += bytes;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return Array(std::move(result));
}

}  // namespace

Array::Array(Tensor tensor) : own(std::make_shared<Tensor>(std::move(tensor))) { view = own->view(); }

Array::Array(const TensorView& of, py::object kept, std::shared_ptr<void> held)
    : view(of), owner(std::move(kept)), lease(std::move(held)) {}

void add_array(py::module_& module) {
  py::class_<Array, std::shared_ptr<Array>>(
      module, "Array", py::buffer_protocol(),
      "A tensor of the library's: dtype says what its elements stand for. Read it with "
      "numpy() or torch(), or by memoryview(), numpy.asarray() or DLPack, in which codes "
      "are bytes (two FP4 codes in one) and bf16 in a buffer is its bits.")
      .def_static(
          "zeros",
          [](const std::vector<std::int64_t>& shape, const std::string& dtype) {
            return Array(Tensor(meant(kDTypes, dtype, "dtype"), Shape(std::span(shape))));
          },
          py::arg("shape"), py::arg("dtype") = "f32", "A new one, of zeros.")
      .def_buffer(&buffer_of)
      .def(
          "__dlpack__",
          [](const py::object& self, const py::object&, const std::optional<std::pair<int, int>>& max_version,
             const py::object&, const py::object&) { return to_dlpack(self, max_version); },
          py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const Array&) { return py::make_tuple(dlpack::kCpu, 0); })
      .def_property_readonly(
          "dtype", [](const Array& array) { return word_of(array.view.dtype()); },
          "\"f32\", \"bf16\", \"e4m3\", ..")
      .def_property_readonly(
          "shape",
          [](const Array& array) {
            const auto extents = array.view.shape().extents();
            return py::tuple(py::cast(std::vector<std::int64_t>(extents.begin(), extents.end())));
          })
      .def_property_readonly("nbytes", [](const Array& array) { return array.view.bytes(); })
      .def_property_readonly(
          "pointer", [](const Array& array) { return reinterpret_cast<std::uintptr_t>(array.view.data()); })
      .def_property_readonly("writable", &Array::writable)
      .def(
          "copy", [](const Array& array) { return Array(copy_of(array.view)); },
          "The same in memory of its own.")
      .def(
          "numpy",
          [](const py::object& self) {
            return py::module_::import("amaxscope.tensors").attr("to_numpy")(self);
          },
          "As a numpy array over the same memory; of ml_dtypes' types where numpy has none (bf16, FP8); "
          "FP4 codes as bytes.")
      .def(
          "torch",
          [](const py::object& self) {
            return py::module_::import("amaxscope.tensors").attr("to_torch")(self);
          },
          "As a torch tensor: over the same memory, or of a copy where this array is read-only.")
      .def("__repr__", [](const Array& array) {
        return fmt::format("<amaxscope.Array {} {}>", word_of(array.view.dtype()),
                           to_string(array.view.shape()));
      });
  module.def("contiguous_copy", &contiguous_copy);
}

}  // namespace amaxscope::python

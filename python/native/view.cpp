#include "python/native/view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>

#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "python/native/dlpack.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

struct RowLayout {
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  std::int64_t row_stride = 1;
};

/// None when rows do not lie at one distance, or the elements of a row are not side by side.
std::optional<RowLayout> layout_of(const std::vector<std::int64_t>& shape,
                                   const std::vector<std::int64_t>& strides) {
  RowLayout result;
  if (shape.empty()) return result;
  result.cols = shape.back();
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) result.rows *= shape[i];
  result.row_stride = result.cols;
  if (result.rows == 0 || result.cols == 0) return result;
  if (result.cols != 1 && strides.back() != 1) return std::nullopt;
  // From the last dimension of rows outwards: each goes on where the one inside it ends.
  std::int64_t expected = 0;
  for (std::size_t i = shape.size() - 1; i-- > 0;) {
    if (shape[i] == 1) continue;
    if (expected == 0) {
      result.row_stride = strides[i];
      if (result.row_stride < result.cols) return std::nullopt;
    } else if (strides[i] != expected) {
      return std::nullopt;
    }
    expected = strides[i] * shape[i];
  }
  return result;
}

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

DType dtype_of(const dlpack::DataType& type, const std::string& name) {
  struct Known {
    int code;
    int bits;
    DType dtype;
  };
  static constexpr std::array kKnown = {
      Known{2, 64, DType::kF64},  Known{2, 32, DType::kF32},  Known{2, 16, DType::kF16},
      Known{4, 16, DType::kBF16}, Known{1, 8, DType::kU8},    Known{1, 32, DType::kU32},
      Known{0, 32, DType::kI32},  Known{1, 64, DType::kU64},  Known{0, 64, DType::kI64},
      Known{10, 8, DType::kE4M3}, Known{12, 8, DType::kE5M2}, Known{14, 8, DType::kE8M0}};
  for (const Known& known : kKnown) {
    if (type.code == known.code && type.bits == known.bits && type.lanes == 1) return known.dtype;
  }
  throw Error(
      ErrorCode::kTensor,
      fmt::format(
          "{} has DLPack's type {} of {} bits and {} lanes, which amaxscope does not know; floats, bf16, "
          "FP8, u8 and integers of 32 and 64 bits are known",
          name, type.code, type.bits, type.lanes));
}

/// A capsule that is used up, whose memory `release` gives back.
template <class Managed>
py::capsule owner_of(Managed* managed) {
  return py::capsule(managed, [](void* pointer) {
    auto* const own = static_cast<Managed*>(pointer);
    if (own->deleter != nullptr) own->deleter(own);
  });
}

/// What View is made of: pointer, dtype, shape, strides, writable, owner.
py::tuple parts_of(const dlpack::Tensor& tensor, bool writable, const py::object& owner,
                   const std::string& name) {
  AMAXSCOPE_CHECK(tensor.device.type == dlpack::kCpu, ErrorCode::kTensor,
                  "{} is on a device (DLPack's kind {}, number {}); this package takes tensors in host "
                  "memory: hand in a copy "
                  "there",
                  name, tensor.device.type, tensor.device.id);
  std::vector<std::int64_t> shape(tensor.shape, tensor.shape + tensor.ndim);
  std::vector<std::int64_t> strides = contiguous_strides(shape);
  if (tensor.strides != nullptr) strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  return py::make_tuple(reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset,
                        word_of(dtype_of(tensor.dtype, name)), std::move(shape), std::move(strides), writable,
                        owner);
}

/// Takes a capsule of __dlpack__() over.
py::tuple parts_of_dlpack(const py::object& capsule, const std::string& name) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    auto* const managed = static_cast<dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    AMAXSCOPE_CHECK(managed->version.major == 1, ErrorCode::kTensor,
                    "{} comes by DLPack {}.{}; version 1 is known", name, managed->version.major,
                    managed->version.minor);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return parts_of(managed->tensor, (managed->flags & dlpack::kReadOnly) == 0, owner_of(managed), name);
  }
  AMAXSCOPE_CHECK(PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0, ErrorCode::kTensor,
                  "{}: what __dlpack__() returned is no capsule of DLPack, or one that was used before",
                  name);
  auto* const managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return parts_of(managed->tensor, true, owner_of(managed), name);
}

py::tuple parts_of_buffer(const py::buffer& buffer, const std::string& name) {
  struct Known {
    std::string_view letters;
    py::ssize_t bytes;
    DType dtype;
  };
  static constexpr std::array kKnown = {Known{"d", 8, DType::kF64},  Known{"f", 4, DType::kF32},
                                        Known{"e", 2, DType::kF16},  Known{"B", 1, DType::kU8},
                                        Known{"IL", 4, DType::kU32}, Known{"il", 4, DType::kI32},
                                        Known{"LQ", 8, DType::kU64}, Known{"lq", 8, DType::kI64}};
  // Held by a memoryview: the memory stays where it is as long as one is there.
  const py::memoryview held(buffer);
  const py::buffer_info info = buffer.request();
  const std::string_view format = info.format;
  const std::string_view letter =
      !format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<') ? format.substr(1)
                                                                                    : format;
  for (const Known& known : kKnown) {
    if (letter.size() != 1 || known.letters.find(letter) == std::string_view::npos ||
        info.itemsize != known.bytes)
      continue;
    std::vector<std::int64_t> strides;
    for (const py::ssize_t stride : info.strides) {
      AMAXSCOPE_CHECK(stride % info.itemsize == 0, ErrorCode::kTensor,
                      "{} has a stride of {} bytes, which is no whole elements of {} bytes", name, stride,
                      info.itemsize);
      strides.push_back(stride / info.itemsize);
    }
    return py::make_tuple(reinterpret_cast<std::uintptr_t>(info.ptr), word_of(known.dtype), info.shape,
                          std::move(strides), !info.readonly, held);
  }
  throw Error(ErrorCode::kTensor,
              fmt::format("{} is a buffer of \"{}\" with {} bytes each, which amaxscope does not know", name,
                          format, info.itemsize));
}

}  // namespace

void View::require_writable(std::string_view name) const {
  AMAXSCOPE_CHECK(writable, ErrorCode::kTensor, "{} is read-only and would be written to", name);
}

View make_view(std::uintptr_t pointer, const std::string& dtype, std::vector<std::int64_t> shape,
               const std::optional<std::vector<std::int64_t>>& strides, bool writable, py::object owner,
               const std::string& name) {
  const DType type = meant(kDTypes, dtype, fmt::format("the dtype of {}", name));
  for (const std::int64_t extent : shape) {
    AMAXSCOPE_CHECK(extent >= 0, ErrorCode::kTensor, "{} has the shape [{}]", name, fmt::join(shape, ", "));
  }
  AMAXSCOPE_CHECK(!strides || strides->size() == shape.size(), ErrorCode::kTensor,
                  "{} has {} dimensions and {} strides", name, shape.size(), strides ? strides->size() : 0);
  const std::vector<std::int64_t> given = strides ? *strides : contiguous_strides(shape);
  const std::optional<RowLayout> layout = layout_of(shape, given);
  AMAXSCOPE_CHECK(layout.has_value(), ErrorCode::kTensor,
                  "{} has the shape [{}] and the strides [{}] (in elements); the elements of a row must lie "
                  "side by side and "
                  "rows at one distance: hand in a contiguous copy, as amaxscope.contiguous() makes one",
                  name, fmt::join(shape, ", "), fmt::join(given, ", "));
  View view;
  view.matrix.data =
      reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr): it came as a number
  view.matrix.dtype = static_cast<amaxscope_dtype>(type);
  view.matrix.rows = layout->rows;
  view.matrix.cols = layout->cols;
  view.matrix.row_stride = layout->row_stride;
  view.shape = std::move(shape);
  view.writable = writable;
  view.owner = std::move(owner);
  return view;
}

void add_view(py::module_& module) {
  py::class_<View>(module, "View")
      .def(py::init(&make_view), py::arg("pointer"), py::arg("dtype"), py::arg("shape"),
           py::arg("strides") = py::none(), py::arg("writable") = true, py::arg("owner") = py::none(),
           py::arg("name") = "the tensor")
      .def_property_readonly(
          "pointer", [](const View& view) { return reinterpret_cast<std::uintptr_t>(view.matrix.data); })
      .def_property_readonly("dtype",
                             [](const View& view) { return word_of(static_cast<DType>(view.matrix.dtype)); })
      .def_property_readonly("shape", [](const View& view) { return py::tuple(py::cast(view.shape)); })
      .def_property_readonly("rows", [](const View& view) { return view.matrix.rows; })
      .def_property_readonly("cols", [](const View& view) { return view.matrix.cols; })
      .def_property_readonly("row_stride", [](const View& view) { return view.matrix.row_stride; })
      .def_readonly("writable", &View::writable)
      .def_readonly("owner", &View::owner);
  module.def("parts_of_dlpack", &parts_of_dlpack);
  module.def("parts_of_buffer", &parts_of_buffer);
}

}  // namespace amaxscope::python

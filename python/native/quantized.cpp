#include "python/native/quantized.hpp"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "kernels/gemm.hpp"
#include "python/native/array.hpp"
#include "python/native/errors.hpp"
#include "python/native/view.hpp"
#include "python/native/words.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope::python {

namespace {

Direction direction_of(std::string_view direction) { return meant(kDirections, direction, "direction"); }

/// What a GEMM multiplies in a direction.
struct Operand {
  std::shared_ptr<Array> data;
  bool transposed = false;
  float scale_inv = 1.0F;
  std::shared_ptr<Array> block_scales;  ///< null: none
  std::pair<int, int> block_shape = {1, 1};
  float tensor_factor = 1.0F;
  bool rotated = false;
};

Operand operand_of(const py::object& self, const std::string& direction) {
  const auto& quantized = self.cast<const Quantized&>();
  const GemmOperand own = quantized.handle.tensor->operand(direction_of(direction));
  const auto array = [&](const TensorView& view) {
    return std::make_shared<Array>(view, self, quantized.lease);
  };
  Operand operand;
  operand.data = array(own.data);
  operand.transposed = own.transposed;
  operand.scale_inv = own.scale_inv;
  if (own.blocks) {
    operand.block_scales = array(own.blocks->scales);
    operand.block_shape = {static_cast<int>(own.blocks->layout.block_rows),
                           static_cast<int>(own.blocks->layout.block_cols)};
    if (own.blocks->tensor_scale) {
      operand.tensor_factor = own.blocks->tensor_scale->amax * own.blocks->tensor_scale->factor;
    }
    operand.rotated = own.blocks->rotated;
  }
  return operand;
}

void keep(Quantized& quantized, bool rowwise, bool columnwise) {
  AMAXSCOPE_CHECK(
      quantized.lease.use_count() == 1, ErrorCode::kUsage,
      "{} arrays point into this operand, which keep() would change under them: let go of them, or of copies "
      "take copy()",
      quantized.lease.use_count() - 1);
  run(nullptr, [&] { return amaxscope_keep(&quantized.handle, directions(rowwise, columnwise)); });
}

Array values(const Quantized& quantized, const std::string& direction, const std::string& dtype) {
  const Direction wanted = direction_of(direction);
  const DType type = meant(kDTypes, dtype, "dtype");
  AMAXSCOPE_CHECK(is_high_precision(type), ErrorCode::kUsage, "dtype is {}; values are f32, f16 or bf16",
                  dtype);
  Tensor result;
  run(nullptr, [&] { result = quantized.handle.tensor->dequantize(type, wanted); });
  return Array(std::move(result));
}

/// A quantizer of a recipe by itself, with the history of delayed scaling where there is one.
class OwnQuantizer {
 public:
  OwnQuantizer(const std::string& recipe, const std::string& tensor, const std::optional<std::string>& format,
               const std::string& name, int history) {
    QuantizerRequest request;
    request.recipe = static_cast<RecipeKind>(meant(kRecipes, recipe, "recipe"));
    request.tensor = static_cast<TensorKind>(meant(kTensors, tensor, "tensor"));
    if (format) request.format = meant(kDTypes, *format, "format");
    request.name = name;
    if (request.recipe == RecipeKind::kDelayed) {
      AMAXSCOPE_CHECK(history >= 1, ErrorCode::kUsage, "history is {}; it is 1 at least", history);
      delayed_ =
          std::make_unique<DelayedScalingState>(DelayedScalingOptions{.history_length = history}, nullptr);
      request.delayed = delayed_.get();
    }
    quantizer_ = make_quantizer(request);
  }

  Quantized quantize(const View& x, bool rowwise, bool columnwise) {
    const TensorView view = capi::view_of(&x.matrix, "x");
    std::shared_ptr<QuantizedTensor> tensor;
    run(nullptr, [&] {
      tensor =
          quantizer_->quantize(view, Usage{.rowwise = rowwise, .columnwise = columnwise}, TensorMoment{});
    });
    return {std::move(tensor), py::none()};
  }
  void step() {
    if (delayed_ != nullptr) delayed_->update();
  }

 private:
  std::unique_ptr<DelayedScalingState> delayed_;
  std::shared_ptr<Quantizer> quantizer_;
};

void multiply(const std::string& gemm, const Quantized& a, const Quantized& b, float beta, View& out) {
  const amaxscope_gemm which = meant(kGemms, gemm, "gemm");
  amaxscope_view* const result = out.to_write("out");
  run(nullptr, [&] { return amaxscope_multiply(which, &a.handle, &b.handle, beta, result); });
}

}  // namespace

void add_quantized(py::module_& module) {
  py::class_<Operand>(module, "Operand", "What a GEMM multiplies, in one direction of a quantized tensor.")
      .def_readonly("data", &Operand::data, "Codes, or values in high precision.")
      .def_readonly("transposed", &Operand::transposed,
                    "data is the transpose of the matrix that stands here.")
      .def_readonly("scale_inv", &Operand::scale_inv,
                    "Values are codes times this; 1 in high precision and with block scales.")
      .def_readonly("block_scales", &Operand::block_scales,
                    "None, or e8m0 (mxfp8), f32 (block) or e4m3 (nvfp4), padding included.")
      .def_readonly("block_shape", &Operand::block_shape, "Elements under one scale: rows, columns.")
      .def_readonly("tensor_factor", &Operand::tensor_factor,
                    "nvfp4: a block's scale stands for scale times this; else 1.")
      .def_readonly("rotated", &Operand::rotated,
                    "nvfp4: the codes are of the random Hadamard transform along the sum of the product.");
  py::class_<Quantized>(module, "Quantized")
      .def_property_readonly(
          "shape",
          [](const Quantized& quantized) {
            const auto extents = quantized.handle.tensor->shape().extents();
            return py::tuple(py::cast(std::vector<std::int64_t>(extents.begin(), extents.end())));
          })
      .def_property_readonly("rowwise",
                             [](const Quantized& own) { return own.handle.tensor->usage().rowwise; })
      .def_property_readonly("columnwise",
                             [](const Quantized& own) { return own.handle.tensor->usage().columnwise; })
      .def("format",
           [](const Quantized& own, const std::string& direction) {
             return own.handle.tensor->format_name(direction_of(direction));
           })
      .def("operand", &operand_of)
      .def("values", &values)
      .def("keep", &keep);
  py::class_<OwnQuantizer>(module, "Quantizer")
      .def(py::init<const std::string&, const std::string&, const std::optional<std::string>&,
                    const std::string&, int>())
      .def("quantize", &OwnQuantizer::quantize)
      .def("step", &OwnQuantizer::step);
  module.def("multiply", &multiply);
}

}  // namespace amaxscope::python

// What the logging features measure, for programs whose own kernels make the codes: sums that add up over
// micro-batches and ranks. amaxscope/_dlfw uses them.
#include "python/native/statistics.hpp"

#include <string>

#include "capi/handles.hpp"
#include "features/quantization_measure.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/tensor_stats.hpp"
#include "python/native/errors.hpp"
#include "python/native/quantized.hpp"
#include "python/native/view.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

py::dict dictionary_of(const QuantizationError& error) {
  py::dict result;
  result["numel"] = error.numel;
  result["nan"] = error.nan;
  result["compared"] = error.compared;
  result["underflows"] = error.underflows;
  result["overflows"] = error.overflows;
  result["saturated"] = error.saturated;
  result["error_squares"] = error.error_squares;
  result["signal_squares"] = error.signal_squares;
  result["quantized_squares"] = error.quantized_squares;
  result["product"] = error.product;
  result["saturated_squares"] = error.saturated_squares;
  result["flushed_squares"] = error.flushed_squares;
  result["max_error"] = error.max_error;
  return result;
}

/// Of codes that a cast under this scale would make.
py::dict cast_error(const View& x, const std::string& format, float scale) {
  const TensorView view = capi::view_of(&x.matrix, "x");
  const DType codes = meant(kDTypes, format, "format");
  QuantizationError error;
  run(nullptr, [&] { error = quantization_error_of_cast(view, codes, scale); });
  return dictionary_of(error);
}

/// Of codes that somebody else made under one scale.
py::dict error_of_codes(const View& x, const View& codes, float scale, float scale_inv) {
  const TensorView original = capi::view_of(&x.matrix, "x");
  const TensorView bytes = capi::view_of(&codes.matrix, "codes");
  QuantizationError error;
  run(nullptr, [&] { error = quantization_error(original, bytes, scale, scale_inv); });
  return dictionary_of(error);
}

/// Of a quantized tensor of this library's; with `blocks`, `zero_blocks`, `scale_min` and `scale_max` (+Inf
/// and 0: there is none).
py::dict error_of_quantized(const View& x, const Quantized& quantized, const std::string& direction) {
  const TensorView original = capi::view_of(&x.matrix, "x");
  const Direction which = meant(kDirections, direction, "direction");
  const QuantizedTensor* const codes = codes_in(quantized.handle.tensor.get(), which);
  AMAXSCOPE_CHECK(codes != nullptr, ErrorCode::kUsage,
                  "there are no codes {}: that direction is in high precision, or was not made", direction);
  BlockQuantizationError error;
  run(nullptr, [&] { error = measure_codes(original, *codes, which, nullptr, false).error; });
  py::dict result = dictionary_of(error.elements);
  result["blocks"] = error.blocks;
  result["zero_blocks"] = error.zero_blocks;
  result["saturated_blocks"] = error.saturated_blocks;
  result["flushed_blocks"] = error.flushed_blocks;
  result["scale_min"] = error.scale_min;
  result["scale_max"] = error.scale_max;
  return result;
}

double blockwise_range(const View& x, int block, int dims, bool both_orientations) {
  const TensorView view = capi::view_of(&x.matrix, "x");
  double range = 0;
  run(nullptr, [&] { range = max_blockwise_dynamic_range(view, block, dims, both_orientations); });
  return range;
}

}  // namespace

void add_statistics(py::module_& module) {
  module.def("cast_error", &cast_error);
  module.def("error_of_codes", &error_of_codes);
  module.def("error_of_quantized", &error_of_quantized);
  module.def("blockwise_range", &blockwise_range);
}

}  // namespace amaxscope::python

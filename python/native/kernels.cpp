#include "python/native/kernels.hpp"

#include <bit>
#include <string>

#include "capi/handles.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/tensor_stats.hpp"
#include "python/native/array.hpp"
#include "python/native/errors.hpp"
#include "python/native/words.hpp"

namespace amaxscope::python {

namespace {

TensorView view_of(const View& x) { return capi::view_of(&x.matrix, "x"); }

float amax_of(const View& x) {
  const TensorView view = view_of(x);
  std::uint32_t bits = 0;
  run(nullptr, [&] { bits = amax_bits(view); });
  return std::bit_cast<float>(bits);
}

py::dict statistics(const View& x) {
  const TensorView view = view_of(x);
  TensorMoments moments;
  run(nullptr, [&] { moments = tensor_stats(view, MomentOrder::kFourth); });
  py::dict result;
  result["numel"] = moments.numel;
  result["nan"] = moments.nan;
  result["inf"] = moments.inf;
  result["nonzero"] = moments.nonzero;
  result["min"] = moments.min;
  result["max"] = moments.max;
  result["amax_finite"] = moments.amax_finite;
  result["amin_nonzero"] = moments.amin_nonzero;
  result["sum"] = moments.sum;
  result["l1"] = moments.l1;
  result["sum_squares"] = moments.sum_squares;
  result["mean"] = moments.mean;
  result["m2"] = moments.m2;
  result["m3"] = moments.m3;
  result["m4"] = moments.m4;
  return result;
}

/// To FP8 codes under a scale, or from one high precision to another (scale 1).
Array cast(const View& x, const std::string& dtype, float scale) {
  const TensorView view = view_of(x);
  const DType to = meant(kDTypes, dtype, "dtype");
  AMAXSCOPE_CHECK(is_fp8(to) || scale == 1.0F, ErrorCode::kUsage, "scale is {}, and only FP8 codes have one",
                  scale);
  Tensor result;
  run(nullptr, [&] {
    result = Tensor(to, view.shape());
    if (is_fp8(to)) {
      cast_to_fp8(view, Tensor::of<float>({scale}, {1}), result);
    } else {
      convert(view, result);
    }
  });
  return Array(std::move(result));
}

Array dequantize(const View& codes, float scale_inv, const std::string& dtype) {
  const TensorView view = capi::view_of(&codes.matrix, "codes");
  const DType to = meant(kDTypes, dtype, "dtype");
  Tensor result;
  run(nullptr, [&] {
    result = Tensor(to, view.shape());
    dequantize_fp8(view, Tensor::of<float>({scale_inv}, {1}), result);
  });
  return Array(std::move(result));
}

}  // namespace

void add_kernels(py::module_& module) {
  module.def("amax", &amax_of);
  module.def("statistics", &statistics);
  module.def("cast", &cast);
  module.def("dequantize", &dequantize);
}

}  // namespace amaxscope::python

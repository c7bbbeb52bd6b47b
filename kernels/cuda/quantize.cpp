#include "kernels/cuda/quantize.hpp"

#include "kernels/cuda/arguments.hpp"

namespace amaxscope::cuda {

void amax(const TensorView& x, const MutableTensorView& out, bool accumulate) {
  constexpr std::string_view kOperation = "amax";
  const Matrix matrix = input(kOperation, x);
  require_vector(kOperation, "out", out, DType::kU32, 1, x);
  require_started(kOperation, launch_amax(matrix, data_of<std::uint32_t>(out), accumulate, x.stream()));
}

void scale_of_amax(const TensorView& amax, const ScaleOptions& options, const MutableTensorView& scale,
                   const MutableTensorView& scale_inv) {
  constexpr std::string_view kOperation = "scale_of_amax";
  require_vector(kOperation, "amax", amax, DType::kU32, 1, amax);
  require_vector(kOperation, "scale", scale, DType::kF32, 1, amax);
  require_vector(kOperation, "scale_inv", scale_inv, DType::kF32, 1, amax);
  require_started(kOperation, launch_scale(data_of<std::uint32_t>(amax), options, data_of<float>(scale),
                                           data_of<float>(scale_inv), amax.stream()));
}

void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "cast_to_fp8";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_vector(kOperation, "scale", scale, DType::kF32, 1, x);
  require_shape(kOperation, "out", out, x.shape(), x);
  require_fp8(kOperation, "out", out.dtype());
  require_started(kOperation, launch_cast(matrix, out.dtype(), data_of<float>(scale),
                                          data_of<std::uint8_t>(out), x.stream()));
}

void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                           const MutableTensorView& out_transposed) {
  constexpr std::string_view kOperation = "cast_transpose_to_fp8";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_vector(kOperation, "scale", scale, DType::kF32, 1, x);
  require_shape(kOperation, "out", out, x.shape(), x);
  require_shape(kOperation, "out_transposed", out_transposed, Shape{x.cols(), x.rows()}, x);
  require_fp8(kOperation, "out", out.dtype());
  AMAXSCOPE_CHECK(out_transposed.dtype() == out.dtype(), ErrorCode::kTensor,
                  "{}: out is {} and out_transposed {}", kOperation, to_string(out.dtype()),
                  to_string(out_transposed.dtype()));
  require_started(kOperation, launch_cast_transpose(matrix, out.dtype(), data_of<float>(scale),
                                                    data_of<std::uint8_t>(out),
                                                    data_of<std::uint8_t>(out_transposed), x.stream()));
}

void transpose(const TensorView& x, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "transpose";
  require_shape(kOperation, "x", x, x.shape(), x);
  require_shape(kOperation, "out", out, Shape{x.cols(), x.rows()}, x);
  const int bits = bits_per_element(x.dtype());
  AMAXSCOPE_CHECK(x.dtype() == out.dtype() && (bits == 8 || bits == 16 || bits == 32), ErrorCode::kTensor,
                  "{}: x is {} and out {}; on a device one type of 1, 2 or 4 bytes", kOperation,
                  to_string(x.dtype()), to_string(out.dtype()));
  require_started(kOperation,
                  launch_transpose(x.data(), bits / 8, x.rows(), x.cols(), out.data(), x.stream()));
}

void convert(const TensorView& x, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "convert";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_shape(kOperation, "out", out, x.shape(), x);
  require_compute_type(kOperation, "out", out);
  require_started(kOperation, launch_convert(matrix, out.data(), out.dtype(), x.stream()));
}

void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "dequantize_fp8";
  require_shape(kOperation, "codes", codes, codes.shape(), codes);
  require_fp8(kOperation, "codes", codes.dtype());
  require_vector(kOperation, "scale_inv", scale_inv, DType::kF32, 1, codes);
  require_shape(kOperation, "out", out, codes.shape(), codes);
  require_compute_type(kOperation, "out", out);
  require_started(kOperation,
                  launch_dequantize(data_of<std::uint8_t>(codes), codes.dtype(), codes.numel(),
                                    data_of<float>(scale_inv), out.data(), out.dtype(), codes.stream()));
}

}  // namespace amaxscope::cuda

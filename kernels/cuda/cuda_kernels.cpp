#include "kernels/cuda/cuda_kernels.hpp"

#include <cstring>
#include <utility>

#include "core/cuda/cuda_device.hpp"
#include "core/error.hpp"
#include "kernels/cuda/gemm_scales.hpp"
#include "kernels/cuda/quantize.hpp"
#include "kernels/cuda/statistics.hpp"

namespace amaxscope {

namespace {

/// A result that a kernel left in device memory. Waits for it.
template <class Result>
Result fetched(const Tensor& there) {
  const Tensor here = to_host(there);
  Result result;
  std::memcpy(&result, here.view().data(), sizeof result);
  return result;
}

Tensor bytes_beside(const TensorView& x, std::size_t bytes) {
  return Tensor::beside(x, DType::kU8, {static_cast<std::int64_t>(bytes)});
}

}  // namespace

void CudaKernels::amax(const TensorView& x, const MutableTensorView& out, bool accumulate) {
  const CudaDeviceScope scope(options_.device);
  cuda::amax(x, out, accumulate);
}

void CudaKernels::scale_of_amax(const TensorView& amax, const ScaleOptions& options,
                                const MutableTensorView& scale, const MutableTensorView& scale_inv) {
  const CudaDeviceScope scope(options_.device);
  cuda::scale_of_amax(amax, options, scale, scale_inv);
}

void CudaKernels::cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::cast_to_fp8(x, scale, out);
}

void CudaKernels::cast_transpose_to_fp8(const TensorView& x, const TensorView& scale,
                                        const MutableTensorView& out,
                                        const MutableTensorView& out_transposed) {
  const CudaDeviceScope scope(options_.device);
  cuda::cast_transpose_to_fp8(x, scale, out, out_transposed);
}

void CudaKernels::transpose(const TensorView& x, const MutableTensorView& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::transpose(x, out);
}

void CudaKernels::convert(const TensorView& x, const MutableTensorView& out) {
  if (x.dtype() == out.dtype()) return copy_tensor(out, x);
  const CudaDeviceScope scope(options_.device);
  cuda::convert(x, out);
}

void CudaKernels::quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::quantize_mxfp8(x, two_dimensional, out);
}

void CudaKernels::quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options,
                                      bool two_dimensional, const BlockOutputs& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::quantize_fp8_blocks(x, options, two_dimensional, out);
}

void CudaKernels::nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::nvfp4_amaxes(x, rotate, out);
}

void CudaKernels::quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                                 const BlockOutputs& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::quantize_nvfp4(x, cast, amaxes, out);
}

void CudaKernels::dequantize_fp8(const TensorView& codes, const TensorView& scale_inv,
                                 const MutableTensorView& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::dequantize_fp8(codes, scale_inv, out);
}

void CudaKernels::dequantize_blocks(const BlockScaledView& codes, const MutableTensorView& out) {
  const CudaDeviceScope scope(options_.device);
  cuda::dequantize_blocks(codes, codes.device_amax, out);
}

std::size_t CudaKernels::workspace_bytes() const noexcept { return cuda::statistics_workspace(); }

void CudaKernels::add_tensor_stats(const TensorView& x, MomentOrder order, const ResultSlot& slot) {
  const CudaDeviceScope scope(options_.device);
  cuda::add_tensor_stats(x, order, slot);
}

void CudaKernels::add_quantization_error(const ScaledQuantization& what, const ResultSlot& slot) {
  const CudaDeviceScope scope(options_.device);
  cuda::add_quantization_error(what, slot);
}

void CudaKernels::add_amax(const TensorView& x, const ResultSlot& slot) {
  const CudaDeviceScope scope(options_.device);
  cuda::add_amax(x, slot);
}

Tensor CudaKernels::tiled_scales(const BlockScaledView& codes) {
  const CudaDeviceScope scope(options_.device);
  Tensor out = bytes_beside(codes.codes, static_cast<std::size_t>(cuda::tiled_scales_bytes(codes)));
  cuda::tile_scales(codes, out);
  return out;
}

Tensor CudaKernels::product_scale(const BlockScaledView& a, const BlockScaledView& b, float beta) {
  const CudaDeviceScope scope(options_.device);
  Tensor out = Tensor::beside(a.codes, DType::kF32, {2});
  cuda::product_scale(a, b, beta, out);
  return out;
}

TensorMoments CudaKernels::tensor_stats(const TensorView& x, MomentOrder order) {
  const CudaDeviceScope scope(options_.device);
  Tensor workspace = bytes_beside(x, cuda::statistics_workspace());
  Tensor out = bytes_beside(x, sizeof(TensorMoments));
  cuda::tensor_stats(x, order, workspace, out);
  return fetched<TensorMoments>(out);
}

QuantizationError CudaKernels::quantization_error(const TensorView& x, const std::optional<TensorView>& codes,
                                                  DType format, const TensorView& scale,
                                                  const TensorView& scale_inv) {
  const CudaDeviceScope scope(options_.device);
  Tensor workspace = bytes_beside(x, cuda::statistics_workspace());
  Tensor out = bytes_beside(x, sizeof(QuantizationError));
  if (codes) {
    cuda::quantization_error(x, *codes, scale, scale_inv, workspace, out);
  } else {
    cuda::quantization_error_of_cast(x, format, scale, workspace, out);
  }
  return fetched<QuantizationError>(out);
}

GemmOperand CudaKernels::in_f32(const GemmOperand& operand, bool keep_rotation, Tensor& room) {
  if (operand.data.dtype() == DType::kF32) return operand;
  if (operand.blocks) {
    BlockScaledView view = *operand.blocks;
    // A rotation that the other factor has as well falls out of the product.
    if (keep_rotation) view.rotated = false;
    BlockLayout& layout = view.layout;
    bool transposed = operand.transposed;
    if (layout.codes_transposed && !view.rotated) {
      // Decoded as they are stored, as on the CPU: the same matrix the other way round.
      std::swap(layout.block_rows, layout.block_cols);
      std::swap(layout.scale_rows, layout.scale_cols);
      layout.scales_transposed = !layout.scales_transposed;
      layout.codes_transposed = false;
    } else if (layout.codes_transposed) {
      transposed = !transposed;
    }
    room = Tensor::beside(operand.data, DType::kF32, {view.rows(), view.cols()});
    dequantize_blocks(view, room);
    return {room.view(), transposed};
  }
  room = Tensor::beside(operand.data, DType::kF32, operand.data.shape());
  if (!is_fp8(operand.data.dtype())) {
    convert(operand.data, room);
    return {room.view(), operand.transposed, operand.scale_inv};
  }
  if (operand.device_scale_inv) {
    dequantize_fp8(operand.data, *operand.device_scale_inv, room);
  } else {
    const Tensor scale_inv = to_device(TensorView(&operand.scale_inv, DType::kF32, Shape{1}), operand.data);
    dequantize_fp8(operand.data, scale_inv, room);
  }
  return {room.view(), operand.transposed};
}

void CudaKernels::say(const std::string& text) {
  if (options_.warn && said_.insert(text).second) options_.warn(text);
}

void CudaKernels::gemm(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, float beta) {
  AMAXSCOPE_CHECK(options_.gemm != nullptr, ErrorCode::kTensor,
                  "gemm: the backend of {} was made without a GEMM library (docs/cuda.md)",
                  to_string(out.device()));
  AMAXSCOPE_CHECK(a.depth() == b.depth() && out.rows() == a.rows() && out.cols() == b.rows(),
                  ErrorCode::kTensor, "gemm: a is {} x {}, b {} x {} and out {}", a.rows(), a.depth(),
                  b.rows(), b.depth(), to_string(out.shape()));
  for (const TensorView* data : {&a.data, &b.data}) {
    AMAXSCOPE_CHECK(data->device() == out.device() && data->stream() == out.stream() && data->contiguous() &&
                        out.contiguous(),
                    ErrorCode::kTensor,
                    "gemm: an operand is on {}, out on {}; wanted contiguous ones on one stream",
                    to_string(data->device()), to_string(out.device()));
  }
  const CudaDeviceScope scope(options_.device);
  const std::string why = options_.gemm->multiply(a, b, out, beta);
  if (why.empty()) return;
  AMAXSCOPE_CHECK(options_.unsupported == UnsupportedGemm::kDequantize, ErrorCode::kTensor, "gemm on {}: {}",
                  to_string(out.device()), why);
  say(fmt::format("gemm on {}: {}; such operands are decoded and multiplied in f32", to_string(out.device()),
                  why));
  const bool keep_rotation = a.blocks && b.blocks && a.blocks->rotated && b.blocks->rotated;
  Tensor room_a;
  Tensor room_b;
  const GemmOperand wide_a = in_f32(a, keep_rotation, room_a);
  const GemmOperand wide_b = in_f32(b, keep_rotation, room_b);
  Tensor room_out;
  MutableTensorView wide_out = out;
  if (out.dtype() != DType::kF32 && beta == 0.0F) {
    room_out = Tensor::beside(out, DType::kF32, out.shape());
    wide_out = room_out;
  }
  const std::string still = options_.gemm->multiply(wide_a, wide_b, wide_out, beta);
  AMAXSCOPE_CHECK(still.empty(), ErrorCode::kTensor, "gemm on {}: {}", to_string(out.device()), still);
  if (room_out.defined()) convert(room_out, out);
}

}  // namespace amaxscope

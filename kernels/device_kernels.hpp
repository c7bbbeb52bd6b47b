// The kernels of a device, as the functions of kernels/ call them for tensors that are there. Those functions
// are what everything else calls; they say what each does. An implementation is part of a DeviceBackend
// (kernels/cuda/cuda_backend.hpp).
#pragma once

#include <optional>
#include <string_view>

#include "kernels/block_scale.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/gemm.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/result_slot.hpp"
#include "kernels/tensor_stats.hpp"

namespace amaxscope {

/// Checks its arguments (Error(kTensor)) and enqueues on their stream; the host does not wait, but for those
/// that return a result.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  virtual void amax(const TensorView& x, const MutableTensorView& out, bool accumulate) = 0;
  virtual void scale_of_amax(const TensorView& amax, const ScaleOptions& options,
                             const MutableTensorView& scale, const MutableTensorView& scale_inv) = 0;
  virtual void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) = 0;
  virtual void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale,
                                     const MutableTensorView& out,
                                     const MutableTensorView& out_transposed) = 0;
  virtual void transpose(const TensorView& x, const MutableTensorView& out) = 0;
  virtual void convert(const TensorView& x, const MutableTensorView& out) = 0;
  virtual void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out) = 0;
  virtual void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                                   const BlockOutputs& out) = 0;
  virtual void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out) = 0;
  virtual void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                              const BlockOutputs& out) = 0;
  virtual void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv,
                              const MutableTensorView& out) = 0;
  virtual void dequantize_blocks(const BlockScaledView& codes, const MutableTensorView& out) = 0;
  /// New tensors beside the codes, with what is in kernels/cuda/gemm_scales.hpp.
  [[nodiscard]] virtual Tensor tiled_scales(const BlockScaledView& codes) = 0;
  [[nodiscard]] virtual Tensor product_scale(const BlockScaledView& a, const BlockScaledView& b,
                                             float beta) = 0;
  virtual void gemm(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, float beta) = 0;

  /// Bytes of ResultSlot::workspace.
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  /// Added to a slot of TensorMoments, of ScaledError and of u32, the bits of an amax.
  virtual void add_tensor_stats(const TensorView& x, MomentOrder order, const ResultSlot& slot) = 0;
  virtual void add_quantization_error(const ScaledQuantization& what, const ResultSlot& slot) = 0;
  virtual void add_amax(const TensorView& x, const ResultSlot& slot) = 0;

  /// These wait for the device.
  [[nodiscard]] virtual TensorMoments tensor_stats(const TensorView& x, MomentOrder order) = 0;
  /// codes none: of the cast to `format` with the scale, and scale_inv is not read.
  [[nodiscard]] virtual QuantizationError quantization_error(const TensorView& x,
                                                             const std::optional<TensorView>& codes,
                                                             DType format, const TensorView& scale,
                                                             const TensorView& scale_inv) = 0;
};

/// The kernels of the tensor's device; null on the CPU. Throws Error(kTensor) for a device without a backend.
DeviceKernels* device_kernels(std::string_view operation, const TensorView& tensor);

}  // namespace amaxscope

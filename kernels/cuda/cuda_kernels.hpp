// The kernels of this folder behind the interface that kernels/ calls. Private to kernels/cuda.
#pragma once

#include <set>
#include <string>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

class CudaKernels final : public DeviceKernels {
 public:
  explicit CudaKernels(CudaBackendOptions options) : options_(std::move(options)) {}

  void amax(const TensorView& x, const MutableTensorView& out, bool accumulate) override;
  void scale_of_amax(const TensorView& amax, const ScaleOptions& options, const MutableTensorView& scale,
                     const MutableTensorView& scale_inv) override;
  void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) override;
  void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                             const MutableTensorView& out_transposed) override;
  void transpose(const TensorView& x, const MutableTensorView& out) override;
  void convert(const TensorView& x, const MutableTensorView& out) override;
  void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out) override;
  void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                           const BlockOutputs& out) override;
  void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out) override;
  void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                      const BlockOutputs& out) override;
  void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv,
                      const MutableTensorView& out) override;
  void dequantize_blocks(const BlockScaledView& codes, const MutableTensorView& out) override;
  [[nodiscard]] Tensor tiled_scales(const BlockScaledView& codes) override;
  [[nodiscard]] Tensor product_scale(const BlockScaledView& a, const BlockScaledView& b, float beta) override;
  void gemm(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, float beta) override;
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override;
  void add_tensor_stats(const TensorView& x, MomentOrder order, const ResultSlot& slot) override;
  void add_quantization_error(const ScaledQuantization& what, const ResultSlot& slot) override;
  void add_amax(const TensorView& x, const ResultSlot& slot) override;
  [[nodiscard]] TensorMoments tensor_stats(const TensorView& x, MomentOrder order) override;
  [[nodiscard]] QuantizationError quantization_error(const TensorView& x,
                                                     const std::optional<TensorView>& codes, DType format,
                                                     const TensorView& scale,
                                                     const TensorView& scale_inv) override;

 private:
  /// The operand as f32 in `room`, in the order of its data; itself when it is f32.
  GemmOperand in_f32(const GemmOperand& operand, bool keep_rotation, Tensor& room);
  /// Once for each text.
  void say(const std::string& text);

  CudaBackendOptions options_;
  std::set<std::string> said_;
};

}  // namespace amaxscope

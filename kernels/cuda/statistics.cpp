#include "kernels/cuda/statistics.hpp"

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/arguments.hpp"

namespace amaxscope::cuda {

namespace {

static_assert(std::is_trivially_copyable_v<TensorMoments> && std::is_trivially_copyable_v<QuantizationError>);

/// `bytes` or more of memory for a result or partial ones.
template <class Result>
Result* memory(std::string_view operation, std::string_view name, const MutableTensorView& tensor,
               std::size_t bytes, const TensorView& like) {
  require_device(operation, name, tensor, like);
  AMAXSCOPE_CHECK(tensor.dtype() == DType::kU8 && tensor.contiguous() && tensor.bytes() >= bytes &&
                      reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0,
                  ErrorCode::kTensor,
                  "{}: {} is {} of shape {} at {}; wanted {} bytes of u8 or more, aligned to 16", operation,
                  name, to_string(tensor.dtype()), to_string(tensor.shape()), tensor.data(), bytes);
  return data_of<Result>(tensor);
}

}  // namespace

std::size_t statistics_workspace() noexcept {
  return kMaxPartials * std::max(sizeof(TensorMoments), sizeof(QuantizationError));
}

void tensor_stats(const TensorView& x, MomentOrder order, const MutableTensorView& workspace,
                  const MutableTensorView& out) {
  constexpr std::string_view kOperation = "tensor_stats";
  const Matrix matrix = input(kOperation, x);
  auto* partials = memory<TensorMoments>(kOperation, "workspace", workspace, statistics_workspace(), x);
  auto* result = memory<TensorMoments>(kOperation, "out", out, sizeof(TensorMoments), x);
  require_started(kOperation,
                  launch_tensor_stats(matrix, order == MomentOrder::kFourth, partials, result, x.stream()));
}

void quantization_error(const TensorView& x, const TensorView& codes, const TensorView& scale,
                        const TensorView& scale_inv, const MutableTensorView& workspace,
                        const MutableTensorView& out) {
  constexpr std::string_view kOperation = "quantization_error";
  const Matrix matrix = input(kOperation, x);
  require_shape(kOperation, "codes", codes, x.shape(), x);
  require_fp8(kOperation, "codes", codes.dtype());
  require_vector(kOperation, "scale", scale, DType::kF32, 1, x);
  require_vector(kOperation, "scale_inv", scale_inv, DType::kF32, 1, x);
  auto* partials = memory<QuantizationError>(kOperation, "workspace", workspace, statistics_workspace(), x);
  auto* result = memory<QuantizationError>(kOperation, "out", out, sizeof(QuantizationError), x);
  require_started(kOperation, launch_quantization_error(matrix, data_of<std::uint8_t>(codes), codes.dtype(),
                                                        data_of<float>(scale), data_of<float>(scale_inv),
                                                        partials, result, x.stream()));
}

void quantization_error_of_cast(const TensorView& x, DType format, const TensorView& scale,
                                const MutableTensorView& workspace, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "quantization_error_of_cast";
  const Matrix matrix = input(kOperation, x);
  require_fp8(kOperation, "format", format);
  require_vector(kOperation, "scale", scale, DType::kF32, 1, x);
  auto* partials = memory<QuantizationError>(kOperation, "workspace", workspace, statistics_workspace(), x);
  auto* result = memory<QuantizationError>(kOperation, "out", out, sizeof(QuantizationError), x);
  require_started(kOperation, launch_quantization_error(matrix, nullptr, format, data_of<float>(scale),
                                                        nullptr, partials, result, x.stream()));
}

}  // namespace amaxscope::cuda

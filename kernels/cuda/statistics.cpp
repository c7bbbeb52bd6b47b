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

/// A slot's memory taken apart.
template <class Result>
struct Parts {
  Result* out;
  Accumulation into;
};
template <class Result>
Parts<Result> parts_of(std::string_view operation, const ResultSlot& slot, const TensorView& like) {
  static_assert(std::is_trivially_copyable_v<Accumulated<Result>> && sizeof(AccumulatedHeader) == 16);
  auto* const there =
      memory<Accumulated<Result>>(operation, "slot", slot.memory, sizeof(Accumulated<Result>), like);
  Parts<Result> parts{&there->result, {.header = &there->header, .once = slot.once}};
  if (slot.due) {
    require_vector(operation, "due", *slot.due, DType::kU32, 1, like);
    parts.into.due = data_of<std::uint32_t>(*slot.due);
  }
  if (slot.iteration) {
    require_vector(operation, "iteration", *slot.iteration, DType::kI64, 1, like);
    parts.into.iteration = data_of<std::int64_t>(*slot.iteration);
  }
  return parts;
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
  require_started(kOperation, launch_tensor_stats(matrix, order == MomentOrder::kFourth, partials, result, {},
                                                  x.stream()));
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
  const ErrorArguments arguments{.codes = data_of<std::uint8_t>(codes),
                                 .format = codes.dtype(),
                                 .scale = data_of<float>(scale),
                                 .scale_inv = data_of<float>(scale_inv)};
  require_started(kOperation, launch_quantization_error(matrix, arguments, partials, result, x.stream()));
}

void quantization_error_of_cast(const TensorView& x, DType format, const TensorView& scale,
                                const MutableTensorView& workspace, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "quantization_error_of_cast";
  const Matrix matrix = input(kOperation, x);
  require_fp8(kOperation, "format", format);
  require_vector(kOperation, "scale", scale, DType::kF32, 1, x);
  auto* partials = memory<QuantizationError>(kOperation, "workspace", workspace, statistics_workspace(), x);
  auto* result = memory<QuantizationError>(kOperation, "out", out, sizeof(QuantizationError), x);
  require_started(kOperation,
                  launch_quantization_error(matrix, {.format = format, .scale = data_of<float>(scale)},
                                            partials, result, x.stream()));
}

void add_tensor_stats(const TensorView& x, MomentOrder order, const ResultSlot& slot) {
  constexpr std::string_view kOperation = "add_tensor_stats";
  const Matrix matrix = input(kOperation, x);
  auto* partials = memory<TensorMoments>(kOperation, "workspace", slot.workspace, statistics_workspace(), x);
  const auto parts = parts_of<TensorMoments>(kOperation, slot, x);
  require_started(kOperation, launch_tensor_stats(matrix, order == MomentOrder::kFourth, partials, parts.out,
                                                  parts.into, x.stream()));
}

void add_quantization_error(const ScaledQuantization& what, const ResultSlot& slot) {
  constexpr std::string_view kOperation = "add_quantization_error";
  const TensorView& x = what.x;
  const Matrix matrix = input(kOperation, x);
  require_fp8(kOperation, "format", what.format);
  require_vector(kOperation, "scale", what.scale, DType::kF32, 1, x);
  require_vector(kOperation, "scale_inv", what.scale_inv, DType::kF32, 1, x);
  ErrorArguments arguments{.format = what.format,
                           .scale = data_of<float>(what.scale),
                           .scale_inv = data_of<float>(what.scale_inv)};
  if (what.codes) {
    require_shape(kOperation, "codes", *what.codes, x.shape(), x);
    require_fp8(kOperation, "codes", what.codes->dtype());
    arguments.codes = data_of<std::uint8_t>(*what.codes);
    arguments.format = what.codes->dtype();
  }
  ScaleSource source{.options = what.options};
  if (what.amax) {
    require_vector(kOperation, "amax", *what.amax, DType::kU32, 1, x);
    source.amax = data_of<std::uint32_t>(*what.amax);
  }
  auto* partials =
      memory<QuantizationError>(kOperation, "workspace", slot.workspace, statistics_workspace(), x);
  const auto parts = parts_of<ScaledError>(kOperation, slot, x);
  require_started(kOperation, launch_add_quantization_error(matrix, arguments, source, partials, parts.out,
                                                            parts.into, x.stream()));
}

void add_amax(const TensorView& x, const ResultSlot& slot) {
  constexpr std::string_view kOperation = "add_amax";
  const Matrix matrix = input(kOperation, x);
  const auto parts = parts_of<std::uint32_t>(kOperation, slot, x);
  require_started(kOperation, launch_add_amax(matrix, parts.out, parts.into, x.stream()));
}

}  // namespace amaxscope::cuda

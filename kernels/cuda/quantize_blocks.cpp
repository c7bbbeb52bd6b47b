// The block-scaled formats of quantize.hpp.
#include <bit>
#include <limits>

#include "kernels/codec/hadamard.hpp"
#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/quantize.hpp"

namespace amaxscope::cuda {

namespace {

void require_multiple(std::string_view operation, const TensorView& x, std::int64_t multiple) {
  AMAXSCOPE_CHECK(x.rows() % multiple == 0 && x.cols() % multiple == 0, ErrorCode::kTensor,
                  "{}: x is {} x {}; rows and columns must be multiples of {}", operation, x.rows(), x.cols(),
                  multiple);
}

DType format_of(std::string_view operation, const BlockOutputs& out) {
  AMAXSCOPE_CHECK(out.rowwise || out.columnwise, ErrorCode::kUsage, "{}: no direction is wanted", operation);
  return (out.rowwise ? out.rowwise : out.columnwise)->codes.dtype();
}

/// Checks an output against its layout and has its scales zeroed where they have padding.
template <class Scale>
BlockTarget<Scale> prepared(std::string_view operation, const std::optional<BlockOutput>& out,
                            const BlockLayout& layout, const TensorView& x) {
  if (!out) return {};
  require_shape(operation, "codes", out->codes, layout.codes_shape(x.rows(), x.cols()), x);
  require_shape(operation, "scales", out->scales, layout.scales_shape(x.rows(), x.cols()), x);
  AMAXSCOPE_CHECK(out->codes.dtype() == layout.format && out->scales.dtype() == layout.scale_format,
                  ErrorCode::kTensor, "{}: codes are {} with {} scales, wanted {} with {}", operation,
                  to_string(out->codes.dtype()), to_string(out->scales.dtype()), to_string(layout.format),
                  to_string(layout.scale_format));
  BlockLayout exact = layout;
  exact.pad_rows = exact.pad_cols = 1;
  if (exact.scales_shape(x.rows(), x.cols()) != out->scales.shape()) {
    require_started(operation, launch_zero(out->scales.data(), out->scales.bytes(), x.stream()));
  }
  return {data_of<std::uint8_t>(out->codes), data_of<Scale>(out->scales), out->scales.cols()};
}

float largest_of(DType type) {
  if (type == DType::kF16) return 65504.0F;
  return type == DType::kBF16 ? std::bit_cast<float>(0x7F7F0000U) : std::numeric_limits<float>::max();
}

int log2_of(std::string_view operation, std::int64_t extent) {
  AMAXSCOPE_CHECK(extent > 0 && std::has_single_bit(static_cast<std::uint64_t>(extent)), ErrorCode::kTensor,
                  "{}: a scale for {} elements; on a device they are a power of two", operation, extent);
  return std::countr_zero(static_cast<std::uint64_t>(extent));
}

}  // namespace

void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_mxfp8";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_multiple(kOperation, x, kMxfp8Block);
  const DType format = format_of(kOperation, out);
  require_fp8(kOperation, "codes", format);
  const auto rowwise =
      prepared<std::uint8_t>(kOperation, out.rowwise, mxfp8_layout(format, false, two_dimensional), x);
  const auto columnwise =
      prepared<std::uint8_t>(kOperation, out.columnwise, mxfp8_layout(format, true, two_dimensional), x);
  require_started(kOperation, launch_mxfp8(matrix, format, two_dimensional, rowwise, columnwise, x.stream()));
}

void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                         const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_fp8_blocks";
  const Matrix matrix = contiguous_input(kOperation, x);
  const DType format = format_of(kOperation, out);
  require_fp8(kOperation, "codes", format);
  const auto rowwise =
      prepared<float>(kOperation, out.rowwise, fp8_block_layout(format, false, two_dimensional), x);
  const auto columnwise =
      prepared<float>(kOperation, out.columnwise, fp8_block_layout(format, true, two_dimensional), x);
  const ScaleOptions scaling{.max_value = fp8_max(format),
                             .power_of_two = options.power_of_two,
                             .epsilon = options.epsilon,
                             .value_for_infinity = largest_of(x.dtype())};
  require_started(kOperation, launch_fp8_blocks(matrix, format, scaling, two_dimensional, rowwise, columnwise,
                                                x.stream()));
}

void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "nvfp4_amaxes";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_multiple(kOperation, x, kNvfp4Block);
  require_vector(kOperation, "out", out, DType::kU32, 2, x);
  auto* amaxes = data_of<std::uint32_t>(out);
  require_started(kOperation, launch_zero(amaxes, out.bytes(), x.stream()));
  require_started(kOperation, launch_amax(matrix, &amaxes[0], true, x.stream()));
  require_started(kOperation, rotate ? launch_rotated_amax(matrix, &amaxes[1], x.stream())
                                     : launch_amax(matrix, &amaxes[1], true, x.stream()));
}

void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                    const BlockOutputs& out) {
  constexpr std::string_view kOperation = "quantize_nvfp4";
  const Matrix matrix = contiguous_input(kOperation, x);
  require_multiple(kOperation, x, kNvfp4Block);
  require_vector(kOperation, "amaxes", amaxes, DType::kU32, 2, x);
  AMAXSCOPE_CHECK(out.rowwise || out.columnwise, ErrorCode::kUsage, "{}: no direction is wanted", kOperation);
  require_combination(kOperation, cast);
  const auto rowwise =
      prepared<std::uint8_t>(kOperation, out.rowwise, nvfp4_layout(false, cast.two_dimensional), x);
  const auto columnwise =
      prepared<std::uint8_t>(kOperation, out.columnwise, nvfp4_layout(true, cast.two_dimensional), x);
  Nvfp4Arguments arguments{.two_dimensional = cast.two_dimensional,
                           .rotate_columnwise = cast.rotate_columnwise,
                           .stochastic = cast.stochastic.has_value(),
                           .squared_error = cast.four_over_six == FourOverSix::kSquaredError,
                           .four_over_six = cast.four_over_six != FourOverSix::kOff,
                           .scale_max = cast.scale_max,
                           .rowwise_amax = data_of<std::uint32_t>(amaxes),
                           .columnwise_amax = data_of<std::uint32_t>(amaxes) + 1};
  if (cast.stochastic) {
    arguments.key = cast.stochastic->key;
    arguments.call = cast.stochastic->call;
  }
  require_started(kOperation, launch_nvfp4(matrix, arguments, rowwise, columnwise, x.stream()));
}

void dequantize_blocks(const BlockScaledView& codes, const std::optional<TensorView>& tensor_amax,
                       const MutableTensorView& out) {
  constexpr std::string_view kOperation = "dequantize_blocks";
  const BlockLayout& layout = codes.layout;
  const std::int64_t rows = codes.rows();
  const std::int64_t cols = codes.cols();
  require_shape(kOperation, "codes", codes.codes, layout.codes_shape(rows, cols), codes.codes);
  require_shape(kOperation, "scales", codes.scales, layout.scales_shape(rows, cols), codes.codes);
  require_device(kOperation, "out", out, codes.codes);
  require_compute_type(kOperation, "out", out);
  AMAXSCOPE_CHECK(is_fp8(layout.format) || layout.format == DType::kE2M1, ErrorCode::kTensor,
                  "{}: codes of {}; block-scaled codes are e4m3, e5m2 or e2m1", kOperation,
                  to_string(layout.format));
  AMAXSCOPE_CHECK(codes.codes.dtype() == layout.format && codes.scales.dtype() == layout.scale_format,
                  ErrorCode::kTensor, "{}: codes are {} and scales {}, the layout says {} and {}", kOperation,
                  to_string(codes.codes.dtype()), to_string(codes.scales.dtype()), to_string(layout.format),
                  to_string(layout.scale_format));
  AMAXSCOPE_CHECK(out.contiguous() && out.numel() == rows * cols && (out.numel() == 0 || out.cols() == cols),
                  ErrorCode::kTensor, "{}: out has shape {}, the codes stand for {} x {}", kOperation,
                  to_string(out.shape()), rows, cols);
  AMAXSCOPE_CHECK(
      !codes.rotated || (layout.codes_transposed && rows % static_cast<std::int64_t>(kHadamardSize) == 0),
      ErrorCode::kTensor, "{}: only transposed codes of a multiple of {} rows can be rotated, not {} x {}",
      kOperation, kHadamardSize, rows, cols);
  AMAXSCOPE_CHECK(codes.tensor_scale.has_value() == tensor_amax.has_value(), ErrorCode::kUsage,
                  "{}: an amax of the tensor goes with codes that have a second level of scales", kOperation);
  ScaledCodes arguments{.codes = data_of<std::uint8_t>(codes.codes),
                        .scales = codes.scales.data(),
                        .format = layout.format,
                        .scale_format = layout.scale_format,
                        .stored_rows = codes.codes.rows(),
                        .stored_cols = codes.codes.cols(),
                        .codes_transposed = layout.codes_transposed,
                        .scales_transposed = layout.scales_transposed,
                        .rotated = codes.rotated,
                        .scale_rows_log2 = log2_of(kOperation, layout.scale_rows),
                        .scale_cols_log2 = log2_of(kOperation, layout.scale_cols),
                        .scale_stride = codes.scales.cols()};
  if (tensor_amax) {
    require_vector(kOperation, "tensor_amax", *tensor_amax, DType::kU32, 1, codes.codes);
    arguments.has_tensor_scale = true;
    arguments.tensor_amax = data_of<std::uint32_t>(*tensor_amax);
    arguments.tensor_factor = codes.tensor_scale->factor;
  }
  require_started(kOperation,
                  launch_dequantize_blocks(arguments, out.data(), out.dtype(), codes.codes.stream()));
}

}  // namespace amaxscope::cuda

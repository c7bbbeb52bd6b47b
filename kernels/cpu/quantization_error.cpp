#include "kernels/quantization_error.hpp"

#include "core/device_backend.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/blocks.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

static_assert(kErrorBlock == cpu::kBlock);

namespace {

/// codes: null for those that the cast would make. Both entry points come through here, so that measuring a
/// cast and casting before measuring agree bit for bit.
void measure(std::string_view operation, const TensorView& x, DType format, const std::uint8_t* codes,
             const cpu::Scaling& scaling, QuantizationError& result) {
  cpu::with_compute_type(operation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().format(format).add_error;
    cpu::for_each_run<T>(x, [&](const T* run, std::int64_t count, std::int64_t run_index) {
      cpu::over_blocks<QuantizationError>(
          x, static_cast<std::size_t>(count),
          [&](std::size_t first, std::size_t length) {
            const std::uint8_t* given =
                codes == nullptr ? nullptr : codes + run_index + static_cast<std::int64_t>(first);
            QuantizationError block;
            loop(run + first, given, length, scaling, block);
            return block;
          },
          [&](const QuantizationError& block) { result += block; });
    });
  });
}

void require_fp8(std::string_view operation, std::string_view name, DType format) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: {} is {}; allowed are e4m3 and e5m2", operation,
                  name, to_string(format));
}

}  // namespace

QuantizationError quantization_error(const TensorView& x, const TensorView& codes, float scale,
                                     float scale_inv) {
  constexpr std::string_view kOperation = "quantization_error";
  require_host(kOperation, "x", x);
  cpu::require_shape(kOperation, "codes", codes, x.shape());
  require_fp8(kOperation, "codes", codes.dtype());
  QuantizationError sums;
  measure(kOperation, x, codes.dtype(), cpu::data_of<std::uint8_t>(codes), {scale, scale_inv}, sums);
  return sums;
}

QuantizationError quantization_error(const TensorView& x, const TensorView& codes, const TensorView& scale,
                                     const TensorView& scale_inv) {
  constexpr std::string_view kOperation = "quantization_error";
  if (DeviceKernels* device = device_kernels(kOperation, x))
    return device->quantization_error(x, codes, codes.dtype(), scale, scale_inv);
  return quantization_error(x, codes, cpu::read_scalar(kOperation, "scale", scale),
                            cpu::read_scalar(kOperation, "scale_inv", scale_inv));
}

QuantizationError quantization_error_of_cast(const TensorView& x, DType format, float scale) {
  constexpr std::string_view kOperation = "quantization_error_of_cast";
  if (DeviceKernels* device = device_kernels(kOperation, x)) {
    const Tensor there = to_device(TensorView(&scale, DType::kF32, Shape{1}), x);
    return device->quantization_error(x, std::nullopt, format, there, there);
  }
  QuantizationError sums;
  add_quantization_error_of_cast(x, format, scale, sums);
  return sums;
}

void add_quantization_error_of_cast(const TensorView& rows, DType format, float scale,
                                    QuantizationError& sums) {
  constexpr std::string_view kOperation = "quantization_error_of_cast";
  require_host(kOperation, "x", rows);
  require_fp8(kOperation, "format", format);
  measure(kOperation, rows, format, nullptr, {scale, scale_inverse(scale)}, sums);
}

}  // namespace amaxscope

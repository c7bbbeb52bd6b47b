#include "kernels/quantization_error.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

namespace {

constexpr std::int64_t kBlock = 2048;
/// Independent sums, so that additions need not wait for each other. From 16 on GCC keeps the loop over them
/// and vectorizes it; fewer it unrolls into scalar additions, at a third of the speed.
constexpr std::size_t kLanes = 16;
constexpr std::uint32_t kInfinity = 0x7F800000U;

std::uint32_t magnitude_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU; }

/// What a code means under one scale: its value, and for counting.
struct Scaling {
  float scale;
  float scale_inv;
};

using Lanes = std::array<double, kLanes>;

double total(const Lanes& lanes) noexcept {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <DType kFormat>
void add_counts(const float* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
                QuantizationError& result) {
  const float limit = fp8_max(kFormat) * scaling.scale_inv;
  std::uint32_t nan = 0;
  std::uint32_t underflows = 0;
  std::uint32_t overflows = 0;
  std::uint32_t saturated = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = magnitude_of(x[i]);
    const std::uint32_t is_nan = magnitude > kInfinity ? 1U : 0U;
    const std::uint32_t scaled = magnitude_of(x[i] * scaling.scale);
    nan += is_nan;
    underflows += magnitude != 0 && is_fp8_zero(codes[i]) ? 1U - is_nan : 0U;
    overflows += std::bit_cast<float>(magnitude) > limit ? 1U : 0U;  // false for NaN
    saturated += scaled >= Fp8Traits<kFormat>::kSaturatesFrom ? 1U - is_nan : 0U;
  }
  result.numel += count;
  result.nan += nan;
  result.underflows += underflows;
  result.overflows += overflows;
  result.saturated += saturated;
}

template <DType kFormat>
void add_sums(const float* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
              QuantizationError& result) {
  Lanes errors{};
  Lanes signals{};
  Lanes quantized{};
  Lanes products{};
  Lanes saturated{};
  Lanes flushed{};
  Lanes compared{};
  Lanes largest{};
  const auto add = [&](std::size_t i, std::size_t lane) {
    const float q = kFp8Values<kFormat>[codes[i]] * scaling.scale_inv;
    const bool valid = magnitude_of(x[i]) < kInfinity && magnitude_of(q) < kInfinity;
    const double original = valid ? static_cast<double>(x[i]) : 0.0;
    const double decoded = valid ? static_cast<double>(q) : 0.0;
    const double error = original - decoded;
    const double square = original * original;
    const bool clips = magnitude_of(x[i] * scaling.scale) >= Fp8Traits<kFormat>::kSaturatesFrom;
    saturated[lane] += clips ? square : 0.0;
    flushed[lane] += is_fp8_zero(codes[i]) ? square : 0.0;
    compared[lane] += valid ? 1.0 : 0.0;
    errors[lane] += error * error;
    signals[lane] += square;
    quantized[lane] += decoded * decoded;
    products[lane] += original * decoded;
    largest[lane] = std::max(largest[lane], error < 0 ? -error : error);
  };
  std::size_t first = 0;
  for (; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(first + lane, lane);
  }
  for (std::size_t lane = 0; first + lane < count; ++lane) add(first + lane, lane);
  result.error_squares += total(errors);
  result.signal_squares += total(signals);
  result.quantized_squares += total(quantized);
  result.product += total(products);
  result.saturated_squares += total(saturated);
  result.flushed_squares += total(flushed);
  result.compared += static_cast<std::uint64_t>(total(compared));
  result.max_error = std::max(result.max_error, static_cast<float>(*std::ranges::max_element(largest)));
}

/// codes_of(fp32 values of a block, index of its first element, length) gives the block's codes. Both entry
/// points come through here, so that measuring a cast and casting before measuring agree bit for bit.
template <DType kFormat, class CodesOf>
QuantizationError measure(std::string_view operation, const TensorView& x, const Scaling& scaling,
                          CodesOf&& codes_of) {
  QuantizationError result;
  cpu::with_compute_type(operation, "x", x, [&]<class T>(std::type_identity<T>) {
    std::array<float, kBlock> values;
    cpu::for_each_run<T>(x, [&](const T* run, std::int64_t count, std::int64_t run_index) {
      for (std::int64_t first = 0; first < count; first += kBlock) {
        const auto length = static_cast<std::size_t>(std::min(kBlock, count - first));
        for (std::size_t i = 0; i < length; ++i)
          values[i] = to_float(run[first + static_cast<std::int64_t>(i)]);
        const std::uint8_t* codes = codes_of(values.data(), run_index + first, length);
        add_counts<kFormat>(values.data(), codes, length, scaling, result);
        add_sums<kFormat>(values.data(), codes, length, scaling, result);
      }
    });
  });
  return result;
}

}  // namespace

QuantizationError quantization_error(const TensorView& x, const TensorView& codes, float scale,
                                     float scale_inv) {
  constexpr std::string_view kOperation = "quantization_error";
  cpu::require_cpu(kOperation, "x", x);
  cpu::require_shape(kOperation, "codes", codes, x.shape());
  const auto* given = cpu::data_of<std::uint8_t>(codes);
  return cpu::with_fp8_format(
      kOperation, "codes", codes.dtype(), [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
        return measure<kFormat>(kOperation, x, {scale, scale_inv},
                                [&](const float*, std::int64_t first, std::size_t) { return given + first; });
      });
}

QuantizationError quantization_error_of_cast(const TensorView& x, DType format, float scale) {
  constexpr std::string_view kOperation = "quantization_error_of_cast";
  cpu::require_cpu(kOperation, "x", x);
  return cpu::with_fp8_format(
      kOperation, "format", format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
        std::array<std::uint8_t, kBlock> codes;
        return measure<kFormat>(kOperation, x, {scale, scale_inverse(scale)},
                                [&](const float* values, std::int64_t, std::size_t length) {
                                  for (std::size_t i = 0; i < length; ++i)
                                    codes[i] = encode_fp8<kFormat>(values[i] * scale);
                                  return static_cast<const std::uint8_t*>(codes.data());
                                });
      });
}

}  // namespace amaxscope

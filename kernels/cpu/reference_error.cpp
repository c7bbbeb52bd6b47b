#include <algorithm>
#include <array>
#include <bit>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/reference_sums.hpp"

namespace amaxscope::cpu::reference {

namespace {

constexpr std::uint32_t kInfinity = 0x7F800000U;

std::uint32_t magnitude_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU; }

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

}  // namespace

template <DType kFormat, class T>
void add_error(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
               QuantizationError& sums) {
  std::array<float, kBlock> values;
  std::array<std::uint8_t, kBlock> made;
  for (std::size_t i = 0; i < count; ++i) values[i] = to_float(x[i]);
  if (codes == nullptr) {
    for (std::size_t i = 0; i < count; ++i) made[i] = encode_fp8<kFormat>(values[i] * scaling.scale);
    codes = made.data();
  }
  add_counts<kFormat>(values.data(), codes, count, scaling, sums);
  add_sums<kFormat>(values.data(), codes, count, scaling, sums);
}

template void add_error<DType::kE4M3>(const float*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);
template void add_error<DType::kE4M3>(const F16*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);
template void add_error<DType::kE4M3>(const BF16*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);
template void add_error<DType::kE5M2>(const float*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);
template void add_error<DType::kE5M2>(const F16*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);
template void add_error<DType::kE5M2>(const BF16*, const std::uint8_t*, std::size_t, const Scaling&,
                                      QuantizationError&);

}  // namespace amaxscope::cpu::reference

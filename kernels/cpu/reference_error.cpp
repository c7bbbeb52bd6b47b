#include <algorithm>
#include <array>
#include <bit>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/reference_sums.hpp"

namespace amaxscope::cpu::reference {

namespace {

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
  LaneSums errors;
  LaneSums signals;
  LaneSums quantized;
  LaneSums products;
  LaneSums saturated;
  LaneSums flushed;
  LaneSums compared;
  LaneSums largest;
  over_lanes(count, [&](std::size_t lane, std::size_t i) {
    const float q = kFp8Values<kFormat>[codes[i]] * scaling.scale_inv;
    const bool valid = magnitude_of(x[i]) < kInfinity && magnitude_of(q) < kInfinity;
    const double original = valid ? static_cast<double>(x[i]) : 0.0;
    const double decoded = valid ? static_cast<double>(q) : 0.0;
    const double error = original - decoded;
    const double square = original * original;
    const bool clips = magnitude_of(x[i] * scaling.scale) >= Fp8Traits<kFormat>::kSaturatesFrom;
    saturated.lanes[lane] += clips ? square : 0.0;
    flushed.lanes[lane] += is_fp8_zero(codes[i]) ? square : 0.0;
    compared.lanes[lane] += valid ? 1.0 : 0.0;
    errors.lanes[lane] += error * error;
    signals.lanes[lane] += square;
    quantized.lanes[lane] += decoded * decoded;
    products.lanes[lane] += original * decoded;
    largest.lanes[lane] = std::max(largest.lanes[lane], error < 0 ? -error : error);
  });
  result.error_squares += errors.total();
  result.signal_squares += signals.total();
  result.quantized_squares += quantized.total();
  result.product += products.total();
  result.saturated_squares += saturated.total();
  result.flushed_squares += flushed.total();
  result.compared += static_cast<std::uint64_t>(compared.total());
  result.max_error = std::max(result.max_error, static_cast<float>(*std::ranges::max_element(largest.lanes)));
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

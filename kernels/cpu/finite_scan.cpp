#include "kernels/finite_scan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/float_pattern.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "finite_scan";

template <class T>
void scan_run(const TensorView& x, const T* data, std::int64_t count, std::int64_t begin, FiniteScan& scan) {
  using Magnitude = typename cpu::FloatPattern<T>::Magnitude;
  constexpr std::uint32_t kInfinity = 0x7F800000U;
  std::array<std::uint32_t, cpu::kMaxPieces> maxima{};
  cpu::over_elements(x, static_cast<std::size_t>(count), std::size_t{1} << 14,
                     [&](std::size_t piece, std::size_t first, std::size_t length) {
                       maxima[piece] = cpu::loops().of<T>().largest(data + first, length);
                     });
  const std::uint32_t largest = *std::ranges::max_element(maxima);
  if (largest < kInfinity) {
    scan.amax = std::max(scan.amax, std::bit_cast<float>(largest));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const Magnitude bits = cpu::magnitude(data[i]);
    if (bits < cpu::FloatPattern<T>::kInfinity) {
      scan.amax = std::max(scan.amax, to_float(std::bit_cast<T>(bits)));
      continue;
    }
    if (scan.count++ == 0) {
      scan.first = begin + i;
      scan.first_is_nan = bits > cpu::FloatPattern<T>::kInfinity;
    }
  }
}

/// not_finite(code) -> 0: finite, 1: Inf, 2: NaN.
template <class Classify>
void scan_codes(const TensorView& x, Classify classify, FiniteScan& scan) {
  cpu::for_each_run<std::uint8_t>(x, [&](const std::uint8_t* codes, std::int64_t count, std::int64_t begin) {
    for (std::int64_t i = 0; i < count; ++i) {
      const int kind = classify(codes[i]);
      if (kind == 0) continue;
      if (scan.count++ == 0) {
        scan.first = begin + i;
        scan.first_is_nan = kind == 2;
      }
    }
  });
}

int classify_e5m2(std::uint8_t code) {
  const unsigned magnitude_bits = code & 0x7FU;
  return magnitude_bits < 0x7CU ? 0 : magnitude_bits == 0x7CU ? 1 : 2;
}

}  // namespace

FiniteScan finite_scan(const TensorView& x) {
  require_host(kOperation, "x", x);
  FiniteScan scan;
  switch (x.dtype()) {
    case DType::kE4M3:
      scan_codes(
          x, [](std::uint8_t code) { return (code & 0x7FU) == 0x7FU ? 2 : 0; }, scan);
      return scan;
    case DType::kE5M2:
      scan_codes(x, classify_e5m2, scan);
      return scan;
    case DType::kE8M0:
      scan_codes(
          x, [](std::uint8_t code) { return code == kE8M0NaN ? 2 : 0; }, scan);
      return scan;
    default:
      break;
  }
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    cpu::for_each_run<T>(x, [&](const T* data, std::int64_t count, std::int64_t begin) {
      scan_run(x, data, count, begin, scan);
    });
  });
  return scan;
}

}  // namespace amaxscope

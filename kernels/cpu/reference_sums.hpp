// Sums in double over a block of elements, in the order that loops.hpp fixes. Private to kernels/cpu.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "kernels/cpu/loops.hpp"

namespace amaxscope::cpu::reference {

inline constexpr std::uint32_t kInfinity = 0x7F800000U;

constexpr std::uint32_t magnitude_of(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
}

// Sixteen lanes also because GCC keeps a loop over them and vectorizes it; fewer it unrolls into scalar
// additions, at a third of the speed.
struct LaneSums {
  std::array<double, kLanes> lanes{};
  [[nodiscard]] double total() const noexcept {
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

/// action(lane, i) for every element i, which goes to lane i % kLanes.
template <class Action>
void over_lanes(std::size_t count, Action&& action) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) action(lane, i + lane);
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) action(lane, i + lane);
}

/// The squared deviations of n elements from their mean, as squares - sum^2 / n, where that loses little:
/// where it is at least a sixteenth of the squares, that is while the mean is below 3.8 standard deviations.
/// The two sums of a block are off by at most 143 roundings (127 additions in a lane, 16 of lanes), so the
/// result is within 16 (3 * 143 + 4) 2^-53 < 8e-13 of the exact one, relatively. Otherwise none: the
/// deviations themselves have to be squared.
inline std::optional<double> m2_of_sums(double sum, double squares, double n) noexcept {
  const double m2 = squares - sum * sum / n;
  return m2 * 16 >= squares ? std::optional(std::max(0.0, m2)) : std::nullopt;
}

/// T: float, F16, BF16.
template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order);

/// kFormat: e4m3, e5m2.
template <DType kFormat, class T>
void add_error(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
               QuantizationError& sums);

}  // namespace amaxscope::cpu::reference

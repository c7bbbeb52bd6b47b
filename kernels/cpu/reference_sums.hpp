// Sums in double over a block of elements, in the order that loops.hpp fixes. Private to kernels/cpu.
#pragma once

#include <array>
#include <bit>

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

/// T: float, F16, BF16.
template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order);

/// kFormat: e4m3, e5m2.
template <DType kFormat, class T>
void add_error(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
               QuantizationError& sums);

}  // namespace amaxscope::cpu::reference

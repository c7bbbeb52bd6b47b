// What tests of the inner loops share: inputs of all kinds, and the instruction sets of the machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/loops.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {

template <class T>
T narrowed(float x);
template <>
inline float narrowed<float>(float x) {
  return x;
}
template <>
inline F16 narrowed<F16>(float x) {
  return narrow<F16>(x);
}
template <>
inline BF16 narrowed<BF16>(float x) {
  return {static_cast<std::uint16_t>(bits_of(x) >> 16)};  // cut: keeps every NaN's sign and payload
}

/// Values of all kinds; specials: NaN of both signs and several payloads, Inf, subnormals, ties of both
/// formats.
template <class T>
std::vector<T> mixture(std::size_t count, unsigned seed, bool specials) {
  const std::vector<float> special = {kNaN,
                                      -kNaN,
                                      from_bits(0x7F800001U),
                                      from_bits(0xFFC12345U),
                                      from_bits(0x7FFFFFFFU),
                                      kInf,
                                      -kInf,
                                      0.0F,
                                      -0.0F,
                                      kDenormal,
                                      -kDenormal,
                                      from_bits(0x007FFFFFU),
                                      17.0F,
                                      19.0F,
                                      464.0F,
                                      -464.0F,
                                      465.0F,
                                      448.0F,
                                      0x1p-10F,
                                      -0x1p-10F,
                                      0x1.8p-10F,
                                      0x1p-17F,
                                      57344.0F,
                                      61440.0F,
                                      65536.0F,
                                      3.4028235e38F,
                                      -3.4028235e38F};
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-14, 9);
  std::uniform_int_distribution<std::size_t> pick(0, special.size() - 1);
  std::vector<T> result(count);
  for (T& x : result) {
    const auto kind = engine() % 16;
    float value = kind == 0 ? 0.0F : std::ldexp(normal(engine), exponent(engine));
    if (specials && kind == 1) value = special[pick(engine)];
    x = narrowed<T>(value);
  }
  return result;
}

/// action(loops of one instruction set, the reference's), for each that this machine has.
template <class Action>
void for_each_target(Action&& action) {
  for (const cpu::Loops& loops : cpu::all_loops().subspan(1)) {
    SCOPED_TRACE(loops.name);
    action(loops, cpu::kReferenceLoops);
  }
}

template <class T>
std::vector<T> all_upper_halves(std::uint32_t lower) {
  std::vector<T> result(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) result[i] = narrowed<T>(from_bits(i << 16 | lower));
  return result;
}

}  // namespace amaxscope::test

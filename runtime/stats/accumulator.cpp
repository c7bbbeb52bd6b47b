#include "runtime/stats/accumulator.hpp"

#include <bit>

namespace amaxscope {

namespace {
constexpr std::uint32_t kSign = 0x80000000U;
}

std::uint32_t order_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);  // -0 + 0 is +0: equal values, equal bits
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

float from_order_bits(std::uint32_t bits) noexcept {
  return std::bit_cast<float>((bits & kSign) != 0 ? bits ^ kSign : ~bits);
}

}  // namespace amaxscope

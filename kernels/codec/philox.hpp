// Philox4x32-10, a counter-based random number generator: Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (2011). A pure function of key and counter, so draws do not depend on who
// makes them or in which order. Shared by host and device.
#pragma once

#include <array>
#include <cstdint>

namespace amaxscope {

using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxCounter = std::array<std::uint32_t, 4>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
        static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The random bits with which NVFP4 rounds a block of 16: of the tensor's key, of how often it was quantized
/// before (below 2^63), of the direction (1: columnwise) and the block's place in it. docs/recipes.md has it.
constexpr PhiloxCounter rounding_draw(std::uint64_t key, std::uint64_t call, std::uint32_t columnwise,
                                      std::uint64_t block) noexcept {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  return philox4x32_10({low(block), low(block >> 32), low(call), low(call >> 32) * 2U + columnwise},
                       {low(key), low(key >> 32)});
}

}  // namespace amaxscope

// Random numbers as pure functions of what they belong to: a seed, a name, a step, an index. No generator
// state, so every rank can make the numbers of its own part and the parts agree with the whole.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/fnv.hpp"

namespace amaxscope::megatron {

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014) after its increment: a bijection of 64 bits.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// The hash of a sequence of words; their order matters.
template <class... Words>
constexpr std::uint64_t hash_words(std::uint64_t first, Words... rest) noexcept {
  std::uint64_t state = mix(first);
  ((state = mix(state ^ static_cast<std::uint64_t>(rest))), ...);
  return state;
}

/// FNV-1a of the text.
constexpr std::uint64_t hash_text(std::string_view text) noexcept { return Fnv1a().add(text).value(); }

/// In [0, 1), a multiple of 2^-53.
constexpr double uniform(std::uint64_t hash) noexcept { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace amaxscope::megatron

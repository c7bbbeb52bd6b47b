// FNV-1a, 64 bits (Fowler, Noll, Vo): fingerprints of short texts that must be the same on every machine. Not
// for data: kernels/content_hash.hpp reads eight bytes at a time.
#pragma once

#include <cstdint>
#include <string_view>

namespace amaxscope {

class Fnv1a {
 public:
  constexpr Fnv1a& add(unsigned char byte) noexcept {
    state_ = (state_ ^ byte) * 0x100000001B3U;
    return *this;
  }
  constexpr Fnv1a& add(std::string_view text) noexcept {
    for (const char c : text) add(static_cast<unsigned char>(c));
    return *this;
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325U;
};

}  // namespace amaxscope

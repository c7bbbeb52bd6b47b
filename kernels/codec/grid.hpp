// The constants of the code formats, in one table: where their values lie, how far apart, and where they end.
// Codecs, scales and statistics take them from here. Shared by host and device; pure.
#pragma once

#include "core/dtype.hpp"

namespace amaxscope {

struct CodeGrid {
  int mantissa_bits;
  int min_exponent;      ///< of the smallest normal value
  float max;             ///< largest finite value
  float saturates_from;  ///< first magnitude that counts as rounding past max: the tie with the next value of
                         ///< a grid without an end
};

/// Throws Error(kTensor): codes are e4m3, e5m2 and e2m1.
[[noreturn]] void refuse_code_format(DType format);

/// format: e4m3 (the "fn" variant: 448, not the 240 of FNUZ), e5m2 or e2m1. Another one is refused; constant
/// expressions, all that device code has, do not compile with one.
constexpr CodeGrid code_grid(DType format) {
  switch (format) {
    case DType::kE4M3:
      return {3, -6, 448.0F, 464.0F};
    case DType::kE5M2:
      return {2, -14, 57344.0F, 61440.0F};
    case DType::kE2M1:
      return {1, 0, 6.0F, 7.0F};
    default:
      refuse_code_format(format);
  }
}

}  // namespace amaxscope

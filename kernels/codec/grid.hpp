// The grids of the code formats: where their values lie and how far apart. Shared by host and device; pure.
#pragma once

#include "core/dtype.hpp"

namespace amaxscope {

struct CodeGrid {
  int mantissa_bits;
  int min_exponent;  ///< of the smallest normal value
  float max;         ///< largest finite value
};

/// format: e4m3, e5m2 or e2m1.
constexpr CodeGrid code_grid(DType format) noexcept {
  if (format == DType::kE2M1) return {1, 0, 6.0F};
  return format == DType::kE4M3 ? CodeGrid{3, -6, 448.0F} : CodeGrid{2, -14, 57344.0F};
}

}  // namespace amaxscope

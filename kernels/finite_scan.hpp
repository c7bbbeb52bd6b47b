// Is there a NaN or an Inf, where, and how large is the rest: one pass when all is well.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope {

struct FiniteScan {
  float amax = 0;           ///< over the finite elements; 0 for codes, whose scale is not known here
  std::int64_t first = -1;  ///< flat index of the first element that is not finite; -1: none
  bool first_is_nan = false;
  std::uint64_t count = 0;  ///< elements that are not finite
};

/// x: f32, f16, bf16 (rows may be padded), codes in e4m3 or e5m2, or scales in e8m0. CPU. Throws
/// Error(kTensor).
FiniteScan finite_scan(const TensorView& x);

}  // namespace amaxscope

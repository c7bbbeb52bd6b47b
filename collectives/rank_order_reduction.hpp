// Elementwise reduction of several buffers in the order given, so that the result does not depend on who
// arrived when. Pure functions on host memory.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// out[i] = op over inputs[..][i], for `count` elements. f64, f32, i32, u32, i64, u64; f16 and bf16 with the
/// arithmetic in fp32, rounded once. out may be one of the inputs. A float NaN may get lost in kMin and kMax.
/// Throws Error(kTensor) for another dtype.
void reduce_in_order(std::span<const void* const> inputs, void* out, std::int64_t count, DType dtype,
                     ReduceOp op);

/// The same for the inputs of `ranks` ranks that lie one after the other from `parts` on.
void reduce_parts_in_order(const void* parts, int ranks, void* out, std::int64_t count, DType dtype,
                           ReduceOp op);

}  // namespace amaxscope

// Which instruction sets simd/ is compiled for. Include before hwy/. Private to kernels/cpu/simd.
// Below AVX2 and NEON the reference runs, which the compiler vectorizes for the baseline. Targets whose
// vectors have no size at compile time (SVE, RVV) cannot hold the fixed sixteen lanes of the sums.
#pragma once

#include <cstdint>

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_WASM)

namespace amaxscope::cpu {

struct Loops;

// Put one target's loops into a table; false where this build or this CPU has not got the target.
bool set_scan_loops(std::int64_t target, Loops& loops);
bool set_encode_loops(std::int64_t target, Loops& loops);
bool set_error_loops(std::int64_t target, Loops& loops);

}  // namespace amaxscope::cpu

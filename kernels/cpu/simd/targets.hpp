// Which instruction sets simd/ is compiled for. Include before hwy/. Private to kernels/cpu/simd.
// Below AVX2 and NEON the reference runs, which the compiler vectorizes for the baseline. Targets whose
// vectors have no size at compile time (SVE, RVV) cannot hold the fixed sixteen lanes of the sums.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_WASM)

namespace amaxscope::cpu {

struct Loops;

// Put the loops of one file into a table, one function for each target that a build has; Highway names the
// namespaces. AVX3_DL is AVX-512 with lookups of bytes (AVX512_VBMI, since Ice Lake and Zen 4), for the files
// that use them: those define HWY_WANT_AVX3_DL.
namespace N_AVX3_DL {
void put_encode(Loops& loops);
void put_transpose(Loops& loops);
}  // namespace N_AVX3_DL
namespace N_AVX3 {
void put_scan(Loops& loops);
void put_encode(Loops& loops);
void put_transpose(Loops& loops);
void put_mx(Loops& loops);
void put_decode(Loops& loops);
void put_error(Loops& loops);
void put_moments(Loops& loops);
void put_nvfp4(Loops& loops);
void put_block_error(Loops& loops);
}  // namespace N_AVX3
namespace N_AVX2 {
void put_scan(Loops& loops);
void put_encode(Loops& loops);
void put_transpose(Loops& loops);
void put_mx(Loops& loops);
void put_decode(Loops& loops);
void put_error(Loops& loops);
void put_moments(Loops& loops);
void put_nvfp4(Loops& loops);
void put_block_error(Loops& loops);
}  // namespace N_AVX2
namespace N_NEON {
void put_scan(Loops& loops);
void put_encode(Loops& loops);
void put_transpose(Loops& loops);
void put_mx(Loops& loops);
void put_decode(Loops& loops);
void put_error(Loops& loops);
void put_moments(Loops& loops);
void put_nvfp4(Loops& loops);
void put_block_error(Loops& loops);
}  // namespace N_NEON

}  // namespace amaxscope::cpu

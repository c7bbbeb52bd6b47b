#include "kernels/cpu/loops.hpp"

#include <vector>

#define HWY_WANT_AVX3_DL
#include "kernels/cpu/simd/targets.hpp"
// After the list of targets that targets.hpp disables.
#include <hwy/highway.h>

namespace amaxscope::cpu {

namespace {

using Put = void (*)(Loops&);

/// Loops for what a processor has; they replace some of those before them that it also runs.
struct Target {
  std::int64_t bit;
  std::string_view name;
  std::vector<Put> parts;
};

/// That this build has loops for, the widest last.
std::vector<Target> built_targets() {
  return {
#if HWY_TARGETS & HWY_NEON
    {HWY_NEON,
     "neon",
     {N_NEON::put_scan, N_NEON::put_encode, N_NEON::put_transpose, N_NEON::put_mx, N_NEON::put_decode,
      N_NEON::put_error, N_NEON::put_moments, N_NEON::put_nvfp4, N_NEON::put_block_error}},
#endif
#if HWY_TARGETS & HWY_AVX2
        {HWY_AVX2,
         "avx2",
         {N_AVX2::put_scan, N_AVX2::put_encode, N_AVX2::put_transpose, N_AVX2::put_mx, N_AVX2::put_decode,
          N_AVX2::put_error, N_AVX2::put_moments, N_AVX2::put_nvfp4, N_AVX2::put_block_error}},
#endif
#if HWY_TARGETS & HWY_AVX3
        {HWY_AVX3,
         "avx512",
         {N_AVX3::put_scan, N_AVX3::put_encode, N_AVX3::put_transpose, N_AVX3::put_mx, N_AVX3::put_decode,
          N_AVX3::put_error, N_AVX3::put_moments, N_AVX3::put_nvfp4, N_AVX3::put_block_error}},
#endif
#if HWY_TARGETS & HWY_AVX3_DL
        {HWY_AVX3_DL, "avx512_vbmi", {N_AVX3_DL::put_encode, N_AVX3_DL::put_transpose}},
#endif
  };
}

std::vector<Loops> runnable_loops() {
  std::vector<Loops> result{kReferenceLoops};
  const std::int64_t supported = hwy::SupportedTargets();
  for (const Target& target : built_targets()) {
    if ((supported & target.bit) == 0) continue;
    Loops& loops = result.emplace_back(result.back());
    loops.name = target.name;
    for (const Put put : target.parts) put(loops);
  }
  return result;
}

}  // namespace

std::span<const Loops> all_loops() {
  static const std::vector<Loops> all = runnable_loops();  // what the CPU can do does not change
  return all;
}

const Loops& loops() { return all_loops().back(); }

}  // namespace amaxscope::cpu

#include "kernels/cpu/loops.hpp"

#include <vector>

#include "kernels/cpu/simd/targets.hpp"
// After the list of targets that targets.hpp disables.
#include <hwy/highway.h>

namespace amaxscope::cpu {

namespace {

std::vector<Loops> runnable_loops() {
  struct Target {
    std::int64_t bit;
    std::string_view name;
  };
  std::vector<Loops> result{kReferenceLoops};
  const std::int64_t supported = hwy::SupportedTargets();
  for (const Target& target :
       {Target{HWY_NEON, "neon"}, Target{HWY_AVX2, "avx2"}, Target{HWY_AVX3, "avx512"}}) {
    if ((supported & target.bit) == 0) continue;
    Loops loops = kReferenceLoops;
    loops.name = target.name;
    if (set_scan_loops(target.bit, loops) && set_encode_loops(target.bit, loops) &&
        set_error_loops(target.bit, loops)) {
      result.push_back(loops);
    }
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

// Runs the kernel with a mistake that only a sanitizer sees, or the one without: emulator_mistakes MISTAKE
#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "tests/emulator/kernels_for_test.cuh"

namespace amaxscope::test {
namespace {

constexpr unsigned kBlocks = 64;

template <Mistake kMistake>
int run() {
  std::vector<std::uint32_t> x(kBlocks * kTestThreads);
  std::iota(x.begin(), x.end(), 0U);
  std::vector<std::uint32_t> out(kBlocks);
  std::vector<std::uint32_t> largest(1);
  const char* error = cuda::launch(sum_kernel<kMistake>, dim3{kBlocks, 1, 1}, kTestThreads, {}, x.data(),
                                   out.data(), largest.data());
  if (error != nullptr) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  std::printf("largest %u\n", largest[0]);
  return 0;
}

int run_named(std::string_view mistake) {
  if (mistake == "none") return run<Mistake::kNone>();
  if (mistake == "missing-barrier") return run<Mistake::kMissingBarrier>();
  if (mistake == "plain-maximum") return run<Mistake::kPlainMaximum>();
  if (mistake == "store-past-end") return run<Mistake::kStorePastEnd>();
  if (mistake == "shared-past-end") return run<Mistake::kSharedPastEnd>();
  std::fprintf(stderr, "unknown mistake\n");
  return 2;
}

}  // namespace
}  // namespace amaxscope::test

int main(int count, char** arguments) { return amaxscope::test::run_named(count == 2 ? arguments[1] : ""); }

// Every one of the 2^32 fp32 inputs against the CUDA toolkit's host conversions.
#include <gtest/gtest.h>

#include <cstdint>

#include "core/half.hpp"
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "tests/kernels/cuda_conversions.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

template <class Ours, class Theirs>
void check_all(Ours&& ours, Theirs&& theirs) {
  std::uint64_t wrong = 0;
  std::uint32_t bits = 0;
  do {
    const float x = from_bits(bits);
    wrong += ours(x) == theirs(x) ? 0 : 1;
  } while (++bits != 0);
  EXPECT_EQ(wrong, 0U);
}

TEST(CudaExhaustive, E4M3) { check_all(encode_fp8<DType::kE4M3>, cuda_e4m3); }
TEST(CudaExhaustive, E5M2) { check_all(encode_fp8<DType::kE5M2>, cuda_e5m2); }
TEST(CudaExhaustive, E2M1) { check_all(encode_e2m1, cuda_e2m1); }
TEST(CudaExhaustive, E8M0) { check_all(encode_e8m0, cuda_e8m0); }
TEST(CudaExhaustive, BF16) {
  check_all([](float x) { return to_bf16(x).bits; }, cuda_bf16);
}
TEST(CudaExhaustive, F16) {
  check_all([](float x) { return to_f16(x).bits; }, cuda_f16);
}

}  // namespace
}  // namespace amaxscope::test

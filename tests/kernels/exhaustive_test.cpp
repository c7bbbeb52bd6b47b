// Every one of the 2^32 fp32 inputs against the table of a format's values. The table is walked along with
// the ascending inputs, so that no search is needed.
#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/cast.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

template <class Encode>
void check_all(const MinifloatGrid& grid, std::uint8_t sign_bit, std::uint8_t nan_code, Encode&& encode) {
  const std::size_t last = grid.values().size() - 1;
  std::size_t code = 0;
  std::uint64_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0x7F800000U; ++bits) {
    const auto magnitude = static_cast<double>(from_bits(bits));
    while (code < last && !grid.rounds_down(magnitude, code)) ++code;
    wrong += encode(from_bits(bits)) == code ? 0 : 1;
    wrong += encode(from_bits(bits | 0x80000000U)) == (code | sign_bit) ? 0 : 1;
  }
  for (std::uint32_t bits = 0x7F800001U; bits <= 0x7FFFFFFFU; ++bits) {
    wrong += encode(from_bits(bits)) == nan_code ? 0 : 1;
    wrong += encode(from_bits(bits | 0x80000000U)) == nan_code ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(Exhaustive, E4M3) { check_all(MinifloatGrid::e4m3(), 0x80, 0x7F, encode_fp8<DType::kE4M3>); }
TEST(Exhaustive, E5M2) { check_all(MinifloatGrid::e5m2(), 0x80, 0x7F, encode_fp8<DType::kE5M2>); }
TEST(Exhaustive, E2M1) { check_all(MinifloatGrid::e2m1(), 0x08, 0x07, encode_e2m1); }

/// The cast kernel is compiled into vector code, which the codec tests above do not run.
TEST(Exhaustive, CastKernelEqualsTheCodec) {
  constexpr std::uint32_t kChunk = 1U << 20;
  Tensor x(DType::kF32, {kChunk});
  Tensor e4m3(DType::kE4M3, {kChunk});
  Tensor e5m2(DType::kE5M2, {kChunk});
  const Tensor one = scalar(1.0F);
  std::uint64_t wrong = 0;
  std::uint32_t first = 0;
  do {
    const auto inputs = x.values<float>();
    for (std::uint32_t i = 0; i < kChunk; ++i) inputs[i] = from_bits(first + i);
    cast_to_fp8(x, one, e4m3);
    cast_to_fp8(x, one, e5m2);
    const auto codes_e4m3 = e4m3.values<std::uint8_t>();
    const auto codes_e5m2 = e5m2.values<std::uint8_t>();
    for (std::uint32_t i = 0; i < kChunk; ++i) {
      const float value = from_bits(first + i);
      wrong += codes_e4m3[i] == encode_fp8<DType::kE4M3>(value) ? 0 : 1;
      wrong += codes_e5m2[i] == encode_fp8<DType::kE5M2>(value) ? 0 : 1;
    }
    first += kChunk;
  } while (first != 0);
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace amaxscope::test

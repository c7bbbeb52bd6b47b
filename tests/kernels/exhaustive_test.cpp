// Every one of the 2^32 fp32 inputs against the table of a format's values. The table is walked along with
// the ascending inputs, so that no search is needed.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cast.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/cpu/loops.hpp"
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

/// What the kernels run is vector code, which the codec tests above do not: every instruction set there is.
TEST(Exhaustive, CastLoopsEqualTheCodec) {
  constexpr std::uint32_t kChunk = 1U << 20;
  std::vector<float> inputs(kChunk);
  std::vector<std::uint8_t> e4m3(kChunk);
  std::vector<std::uint8_t> e5m2(kChunk);
  std::vector<std::uint8_t> codes(kChunk);
  std::uint64_t wrong = 0;
  std::uint32_t first = 0;
  do {
    for (std::uint32_t i = 0; i < kChunk; ++i) {
      inputs[i] = from_bits(first + i);
      e4m3[i] = encode_fp8<DType::kE4M3>(inputs[i]);
      e5m2[i] = encode_fp8<DType::kE5M2>(inputs[i]);
    }
    for (const cpu::Loops& loops : cpu::all_loops()) {
      loops.f32.e4m3.encode(inputs.data(), kChunk, 1.0F, codes.data(), cpu::Store::kCached);
      wrong += codes == e4m3 ? 0 : 1;
      loops.f32.e5m2.encode(inputs.data(), kChunk, 1.0F, codes.data(), cpu::Store::kCached);
      wrong += codes == e5m2 ? 0 : 1;
    }
    first += kChunk;
  } while (first != 0);
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace amaxscope::test

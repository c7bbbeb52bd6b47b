#include "kernels/content_hash.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

namespace amaxscope {
namespace {

TensorView bytes(const std::vector<std::uint8_t>& data) {
  return {data.data(), DType::kU8, {static_cast<std::int64_t>(data.size())}};
}

TEST(ContentHash, EveryBitOfEveryByteCounts) {
  for (const std::size_t size : {1U, 7U, 8U, 63U, 64U, 65U, 200U}) {
    std::vector<std::uint8_t> data(size, 0x5A);
    std::set<std::uint64_t> seen = {content_hash(bytes(data))};
    for (std::size_t i = 0; i < size; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        data[i] ^= static_cast<std::uint8_t>(1U << bit);
        seen.insert(content_hash(bytes(data)));
        data[i] ^= static_cast<std::uint8_t>(1U << bit);
      }
    }
    EXPECT_EQ(seen.size(), 8 * size + 1) << size;
  }
}

TEST(ContentHash, LengthAndOrderCount) {
  EXPECT_NE(content_hash(bytes({})), content_hash(bytes({0})));
  EXPECT_NE(content_hash(bytes({0})), content_hash(bytes({0, 0})));
  EXPECT_NE(content_hash(bytes({1, 2})), content_hash(bytes({2, 1})));
  EXPECT_NE(combine_hashes(1, 2), combine_hashes(2, 1));
}

TEST(ContentHash, PaddingBetweenRowsDoesNot) {
  std::array<float, 16> padded{};
  for (std::size_t i = 0; i < padded.size(); ++i) padded[i] = static_cast<float>(i);
  const std::array<float, 6> packed = {0, 1, 2, 8, 9, 10};
  const TensorView strided(padded.data(), DType::kF32, {2, 3}, {}, {}, 8);
  EXPECT_EQ(content_hash(strided), content_hash(TensorView(packed.data(), DType::kF32, {2, 3})));
}

TEST(ContentHash, PartsSayWhereTwoTensorsDiffer) {
  std::vector<float> a(1000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  std::vector<float> b = a;
  b[731] = -1;
  const ContentParts of_a = content_parts(TensorView(a.data(), DType::kF32, {1000}));
  const ContentParts of_b = content_parts(TensorView(b.data(), DType::kF32, {1000}));
  EXPECT_NE(of_a.whole, of_b.whole);
  // Element 731 is in part 23: 1000 * 23 / 32 = 718, 1000 * 24 / 32 = 750.
  for (std::size_t i = 0; i < ContentParts::kParts; ++i)
    EXPECT_EQ(of_a.parts[i] == of_b.parts[i], i != 23) << i;
}

TEST(ContentHash, FewerElementsThanPartsAndNone) {
  const std::array<float, 3> few = {1, 2, 3};
  EXPECT_EQ(content_parts(TensorView(few.data(), DType::kF32, {3})).whole,
            content_parts(TensorView(few.data(), DType::kF32, {3, 1})).whole);
  EXPECT_EQ(content_parts(TensorView(nullptr, DType::kF32, {0, 8})).whole,
            content_parts(TensorView(nullptr, DType::kF32, {0})).whole);
}

}  // namespace
}  // namespace amaxscope

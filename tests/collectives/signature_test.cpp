// Whatever meets, ranks in the same collective agree and others do not: in the arithmetic of the reductions,
// on bits.
#include "collectives/signature.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

namespace amaxscope::testing {
namespace {

using MaxFrame = std::array<std::uint32_t, kMaxSignatureWords>;
using SumFrame = std::array<double, kSumSignatureWords>;

constexpr std::uint64_t kBits = (std::uint64_t{1} << 61U) - 1;

MaxFrame max_frame(std::uint64_t signature) {
  MaxFrame frame{};
  sign_max(frame, signature);
  return frame;
}
SumFrame sum_frame(std::uint64_t signature) {
  SumFrame frame{};
  sign_sum(frame, signature);
  return frame;
}
MaxFrame max_of(MaxFrame a, const MaxFrame& b) {
  std::ranges::transform(a, b, a.begin(), [](auto x, auto y) { return std::max(x, y); });
  return a;
}
SumFrame sum_of(SumFrame a, const SumFrame& b) {
  std::ranges::transform(a, b, a.begin(), std::plus());
  return a;
}

TEST(Signature, EveryFieldCounts) {
  const CallIdentity call{
      .sequence = 1, .tag = {.what = "a", .layer = "b", .tensor = "c"}, .used = 2, .length = 3};
  const std::uint64_t own = signature_of(call);
  EXPECT_LE(own, kBits);
  EXPECT_EQ(signature_of(call), own);
  std::vector<CallIdentity> others(9, call);
  others[0].sequence = 2;
  others[1].op = ReduceOp::kSum;
  others[2].tag.what = "x";
  others[3].tag.layer = "x";
  others[4].tag.tensor = "x";
  others[5].used = 9;
  others[6].length = 9;
  others[7].iteration = 9;
  others[8].tag = {.what = "ab", .layer = "", .tensor = "c"};
  for (const CallIdentity& other : others) EXPECT_NE(signature_of(other), own);
}

TEST(Signature, RanksOfOneMindAgreeInAnyNumber) {
  std::mt19937_64 random(1);
  for (const int ranks : {2, 3, 4, 7, 8, 1000}) {
    for (const std::uint64_t signature : {std::uint64_t{0}, kBits, random() & kBits, random() & kBits}) {
      MaxFrame max = max_frame(signature);
      SumFrame sum = sum_frame(signature);
      for (int rank = 1; rank < ranks; ++rank) {
        max = max_of(max, max_frame(signature));
        sum = sum_of(sum, sum_frame(signature));
      }
      EXPECT_TRUE(all_agree_max(max));
      EXPECT_TRUE(all_agree_sum(sum, signature, ranks));
    }
  }
  // As many ranks as the sums are exact for: n p^2 in one step.
  const int many = 1 << 20;
  SumFrame sum = sum_frame(kBits);
  for (double& value : sum) value *= many;
  EXPECT_TRUE(all_agree_sum(sum, kBits, many));
  sum[2] -= 1;
  EXPECT_FALSE(all_agree_sum(sum, kBits, many));
}

TEST(Signature, OneBitOfOneRankIsFoundByAll) {
  std::mt19937_64 random(2);
  for (const int ranks : {2, 4, 5}) {
    for (unsigned bit = 0; bit < 61; ++bit) {
      const std::uint64_t one = random() & kBits;
      const std::uint64_t other = one ^ (std::uint64_t{1} << bit);
      MaxFrame max = max_frame(other);
      SumFrame sum = sum_frame(other);
      for (int rank = 1; rank < ranks; ++rank) {
        max = max_of(max, max_frame(one));
        sum = sum_of(sum, sum_frame(one));
      }
      EXPECT_FALSE(all_agree_max(max)) << bit;
      EXPECT_FALSE(all_agree_sum(sum, one, ranks)) << bit;
      EXPECT_FALSE(all_agree_sum(sum, other, ranks)) << bit;
    }
  }
}

TEST(Signature, ManyDifferentOnesWhoseMeanIsSomebodysAreFound) {
  // p - 1, p, p + 1: the mean is p, the squares are not n p^2.
  SumFrame sum = sum_frame(0x4141);
  sum = sum_of(sum, sum_frame(0x4140));
  sum = sum_of(sum, sum_frame(0x4142));
  EXPECT_FALSE(all_agree_sum(sum, 0x4141, 3));
}

/// As MPI sees the frame of a rank in the other collective: the same bytes.
template <class To, class From>
To bytes_as(const From& from) {
  To to{};
  std::memcpy(&to, &from, std::min(sizeof to, sizeof from));
  return to;
}

TEST(Signature, AMaximumThatMeetsASumIsFoundByBoth) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100'000; ++round) {
    // Four ranks, at least one in each collective, in the order of recursive doubling: 0-1 and 2-3, then 0-2
    // and 1-3.
    std::array<bool, 4> sums{};
    const unsigned kinds = 1 + static_cast<unsigned>(random() % 14);
    std::array<std::uint64_t, 4> signatures{};
    std::array<MaxFrame, 4> max{};
    std::array<SumFrame, 4> sum{};
    for (unsigned rank = 0; rank < 4; ++rank) {
      sums[rank] = (kinds >> rank & 1U) != 0;
      // Also those with which words of a double could best be mistaken.
      signatures[rank] = round % 3 == 0 ? kBits : round % 3 == 1 ? random() & kBits : random() & 0xFFFFFFFFU;
      max[rank] = max_frame(signatures[rank]);
      sum[rank] = sum_frame(signatures[rank]);
    }
    for (const unsigned distance : {1U, 2U}) {
      const auto max_before = max;
      const auto sum_before = sum;
      for (unsigned rank = 0; rank < 4; ++rank) {
        const unsigned peer = rank ^ distance;
        if (sums[rank]) {
          sum[rank] = sum_of(sum[rank], sums[peer] ? sum_before[peer] : bytes_as<SumFrame>(max_before[peer]));
        } else {
          max[rank] = max_of(max[rank], sums[peer] ? bytes_as<MaxFrame>(sum_before[peer]) : max_before[peer]);
        }
      }
    }
    for (unsigned rank = 0; rank < 4; ++rank) {
      EXPECT_FALSE(sums[rank] ? all_agree_sum(sum[rank], signatures[rank], 4) : all_agree_max(max[rank]))
          << "rank " << rank << " of kinds " << kinds;
    }
  }
}

}  // namespace
}  // namespace amaxscope::testing

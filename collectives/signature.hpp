// How a collective says which one it is, in the same message as its data, so that ranks in different
// collectives find out. All ranks of the group come to the same verdict. Pure functions.
//
// MAX of u32: words [s_lo, s_hi, ~s_lo, ~s_hi]; all signatures are equal exactly when max(s) == ~max(~s).
// SUM of f64: [2, then for each 16 bits p of the signature p and p^2]; all n ranks have the same p exactly
// when sum(p) == n p and sum(p^2) == n p^2 (a mean equal to p and a variance of 0). Sums of integers below
// 2^53, so exact in every order for up to 2^20 ranks. A MAX that meets a SUM: signatures are below 2^61, so
// as a double the first two words of a MAX are less than 2^-200, and a SUM with such a summand is short of 2
// n; the high word of a sum of twos is at least 0x40000000, more than s_hi may be, and unlike the complement
// of anything that ~s_hi and a double can give.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// What ranks in the same collective have in common.
struct CallIdentity {
  std::uint64_t sequence = 0;
  ReduceOp op = ReduceOp::kMax;
  CollectiveTag tag;
  std::uint64_t used = 0;    ///< how many values mean something
  std::uint64_t length = 0;  ///< how many are sent
  std::int64_t iteration = 0;
};
std::uint64_t signature_of(const CallIdentity& call) noexcept;

constexpr std::size_t kMaxSignatureWords = 4;
constexpr std::size_t kSumSignatureWords = 9;

void sign_max(std::span<std::uint32_t> frame, std::uint64_t signature) noexcept;
/// Of the reduced frame.
bool all_agree_max(std::span<const std::uint32_t> frame) noexcept;

void sign_sum(std::span<double> frame, std::uint64_t signature) noexcept;
bool all_agree_sum(std::span<const double> frame, std::uint64_t own_signature, int ranks) noexcept;

}  // namespace amaxscope

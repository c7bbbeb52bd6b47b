// Where the magnitudes of a tensor lie: counts by power of two, counts on the grid of bf16, energy by column.
// All add to what is there, so that micro-batches and shards add up exactly. Inputs: f32, f16, bf16 on the
// CPU, any row stride (padding is never read). Throw Error(kTensor) for others. Pure, not blocking.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.hpp"

namespace amaxscope {

/// One bin for each power of two that fp32 has, its subnormal numbers included: the bins are the same for
/// every tensor on every rank, and one always fits.
struct ExponentHistogram {
  static constexpr int kLowest = -149;
  static constexpr int kHighest = 127;
  static constexpr std::size_t kBins = kHighest - kLowest + 1;

  std::array<std::uint64_t, kBins> bins{};  ///< [i]: 2^(kLowest + i) <= |x| < 2^(kLowest + i + 1)
  std::uint64_t zero = 0;
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
};
void add_exponents(const TensorView& x, ExponentHistogram& into);

/// Buckets of finite magnitudes cut to bf16 (towards zero): the upper 16 bits of the fp32 pattern.
inline constexpr std::size_t kMagnitudeBuckets = 0x7F80;
/// into: kMagnitudeBuckets counts. NaN and Inf are in none of them.
void add_magnitudes(const TensorView& x, std::span<std::uint64_t> into);
/// How many magnitudes are above a limit >= 0 after both are cut to bf16: exact for bf16 elements; others
/// within one part in 128 above the limit are left out.
std::uint64_t count_above(std::span<const std::uint64_t> magnitudes, double limit) noexcept;

/// Sums of squares of the finite elements of each column, in double; into: one for each of x.cols().
void add_column_energies(const TensorView& x, std::span<double> into);
/// The same of each row; into: one for each of x.rows().
void add_row_energies(const TensorView& x, std::span<double> into);

}  // namespace amaxscope

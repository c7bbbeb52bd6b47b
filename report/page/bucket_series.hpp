// Values over iterations in bounded memory for a picture: buckets of 2^shift iterations with the smallest and
// the largest value of each, so that no extreme is lost however much is thinned. Value types; nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace amaxscope::report {

/// Of the iterations [index << shift, (index + 1) << shift).
struct Bucket {
  std::int64_t index = 0;
  float low = 0;   ///< smallest value; NaN when all are NaN
  float high = 0;  ///< largest value; NaN when any is NaN
};

class BucketSeries {
 public:
  /// Iterations may come in any order and more than once (other ranks, a run that was repeated). Within
  /// float: a finite value stays finite, one that is not zero stays not zero.
  void add(std::int64_t iteration, double value);
  /// Merges another series into this one.
  void add(const BucketSeries& other);
  /// Makes the buckets wider; a shift that is not wider than now does nothing.
  void widen(int shift);
  /// Widens until there are at most `most` buckets.
  void fit(std::size_t most);

  [[nodiscard]] int shift() const noexcept { return shift_; }
  [[nodiscard]] std::span<const Bucket> buckets() const noexcept { return buckets_; }
  static constexpr int kWidest = 60;

 private:
  void merge(const Bucket& bucket);
  int shift_ = 0;
  std::vector<Bucket> buckets_;  ///< by index, each once
};

/// Whether the two have, where both have a bucket of the wider of their shifts, other values in any.
bool differ(const BucketSeries& a, const BucketSeries& b);

}  // namespace amaxscope::report

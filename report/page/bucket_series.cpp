#include "report/page/bucket_series.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace amaxscope::report {

namespace {

float narrowed(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
  if (!std::isfinite(value) || value == 0) return static_cast<float>(value);
  return static_cast<float>(std::copysign(std::clamp(std::abs(value), kSmallest, kLargest), value));
}

void extend(Bucket& bucket, float low, float high) {
  // fmin leaves out a NaN, which is what low wants; high keeps it.
  bucket.low = std::fmin(bucket.low, low);
  const bool any_nan = std::isnan(bucket.high) || std::isnan(high);
  bucket.high = any_nan ? std::numeric_limits<float>::quiet_NaN() : std::max(bucket.high, high);
}

bool same(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

}  // namespace

void BucketSeries::add(std::int64_t iteration, double value) {
  const float number = narrowed(value);
  merge({iteration >> shift_, number, number});
}

void BucketSeries::add(const BucketSeries& other) {
  widen(other.shift_);
  for (const Bucket& bucket : other.buckets_)
    merge({bucket.index >> (shift_ - other.shift_), bucket.low, bucket.high});
}

void BucketSeries::merge(const Bucket& bucket) {
  if (buckets_.empty() || buckets_.back().index < bucket.index) {
    buckets_.push_back(bucket);
    return;
  }
  const auto at = std::ranges::lower_bound(buckets_, bucket.index, {}, &Bucket::index);
  if (at->index == bucket.index) {
    extend(*at, bucket.low, bucket.high);
  } else {
    buckets_.insert(at, bucket);
  }
}

void BucketSeries::widen(int shift) {
  if (shift <= shift_) return;
  const int more = std::min(shift, kWidest) - shift_;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket bucket = buckets_[i];
    bucket.index >>= more;
    if (kept > 0 && buckets_[kept - 1].index == bucket.index) {
      extend(buckets_[kept - 1], bucket.low, bucket.high);
    } else {
      buckets_[kept++] = bucket;
    }
  }
  buckets_.resize(kept);
  shift_ += more;
}

void BucketSeries::fit(std::size_t most) {
  while (buckets_.size() > most && shift_ < kWidest) widen(shift_ + 1);
}

bool differ(const BucketSeries& a, const BucketSeries& b) {
  BucketSeries wide_a = a;
  BucketSeries wide_b = b;
  wide_a.widen(b.shift());
  wide_b.widen(a.shift());
  auto other = wide_b.buckets().begin();
  for (const Bucket& bucket : wide_a.buckets()) {
    while (other != wide_b.buckets().end() && other->index < bucket.index) ++other;
    if (other == wide_b.buckets().end()) return false;
    if (other->index == bucket.index && !(same(bucket.low, other->low) && same(bucket.high, other->high)))
      return true;
  }
  return false;
}

}  // namespace amaxscope::report

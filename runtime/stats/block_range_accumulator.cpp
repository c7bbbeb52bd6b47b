#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/stats/moments_accumulator.hpp"

namespace amaxscope {

namespace {
constexpr std::uint32_t kNoBlock = 0;        // the identity of MAX
constexpr std::uint32_t kNan = 0xFFFFFFFFU;  // wins every MAX
}  // namespace

BlockRangeAccumulator::BlockRangeAccumulator(int block_size, int dims, bool both_orientations)
    : block_size_(block_size), dims_(dims), both_orientations_(both_orientations) {}

std::string BlockRangeAccumulator::stat_name() const {
  return fmt::format("max_blockwise_dynamic_range_block_size_{}_dims_{}{}", block_size_, dims_,
                     both_orientations_ ? "_max_over_orientations" : "");
}

void BlockRangeAccumulator::feed(std::optional<double> range) {
  mark_ran(true);
  if (!range) return;
  word_ = std::isnan(*range) ? kNan : std::max(word_, order_bits(static_cast<float>(*range)));
}

void BlockRangeAccumulator::reset() {
  word_ = kNoBlock;
  mark_ran(false);
}

void BlockRangeAccumulator::pack_max(std::span<std::uint32_t> out) const { out[0] = word_; }

std::vector<StatValue> BlockRangeAccumulator::values(const ReducedStat& reduced) const {
  const std::uint32_t word = reduced.max[0];
  if (word == kNoBlock) return {};
  return {
      {stat_name(), word == kNan ? std::numeric_limits<double>::quiet_NaN() : double{from_order_bits(word)}}};
}

}  // namespace amaxscope

// What an optimizer's update does to a weight in the precision the weight is stored in. Pure, not blocking.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope {

/// Over the pairs (weight, update) of which both are finite, but for the counts of the others. Adds up over
/// shards.
struct UpdateStats {
  std::uint64_t pairs = 0;      ///< finite ones
  std::uint64_t nonfinite = 0;  ///< weight or update is NaN or infinite
  std::uint64_t nonzero = 0;    ///< pairs with an update that is not 0
  std::uint64_t lost = 0;       ///< of those: weight + update, rounded to the weight's dtype, is the weight
  double update_squares = 0;
  double weight_squares = 0;

  UpdateStats& operator+=(const UpdateStats& other) noexcept;
};

/// weight: f32, f16, bf16 or f64, as it is stored before the update; update: f32 or f64, what is to be added,
/// before any rounding to the weight's dtype. Same shape, on the CPU, any row stride. Rounding is to nearest,
/// ties to even: an update is lost when it is less than half the distance from the weight to its neighbour in
/// that direction, or exactly half of it and the weight's last bit is 0. Throws Error(kTensor).
UpdateStats update_stats(const TensorView& weight, const TensorView& update);

}  // namespace amaxscope

// What stands in the memory of a ResultSlot. Shared by host and device; pure.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/error_sums.hpp"

namespace amaxscope {

struct AccumulatedHeader {
  std::uint32_t runs = 0;  ///< how often something was added; 0: the result means nothing
  std::uint32_t reserved = 0;
  std::int64_t iteration = 0;  ///< of the last time, where kernels were told
};

template <class Result>
struct Accumulated {
  AccumulatedHeader header;
  Result result;
};

/// What quantization under one scale did to some tensors, each with its own scale; merge() adds those that
/// came later. An empty tensor brings in nothing, its scale neither.
struct ScaledError {
  QuantizationError error;
  float scale_inv_min = std::numeric_limits<float>::infinity();
  float scale_inv_max = 0;
  float first_scale = 0;  ///< 0: there was none
  float last_scale = 0;
  std::uint32_t scale_changed = 0;  ///< 1: not all of them had the same
  std::uint32_t clamps = 0;         ///< bit c: a scale came about by ScaleClamp c

  constexpr void merge(const ScaledError& later) noexcept;
};

constexpr void ScaledError::merge(const ScaledError& later) noexcept {
  if (later.error.numel == 0) return;
  if (error.numel == 0) {
    first_scale = later.first_scale;
  } else if (last_scale != later.first_scale) {
    scale_changed = 1;
  }
  scale_changed |= later.scale_changed;
  last_scale = later.last_scale;
  scale_inv_min = scale_inv_min < later.scale_inv_min ? scale_inv_min : later.scale_inv_min;
  scale_inv_max = scale_inv_max > later.scale_inv_max ? scale_inv_max : later.scale_inv_max;
  clamps |= later.clamps;
  error += later.error;
}

}  // namespace amaxscope

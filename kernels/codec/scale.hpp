// Per-tensor FP8 scales from an amax: numerics of TransformerEngine's recipe_common.cuh
// (compute_scale_from_amax) and delayed_scaling.cu, with every correction of the result named. Shared by host
// and device; pure functions.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/dtype.hpp"
#include "kernels/codec/grid.hpp"

namespace amaxscope {

constexpr float kFloatMax = 3.4028234663852886e38F;

/// Largest finite magnitude of an FP8 format: 448 (e4m3), 57344 (e5m2). Throws Error(kTensor) for another.
constexpr float fp8_max(DType format) {
  if (!is_fp8(format)) refuse_code_format(format);
  return code_grid(format).max;
}

/// Why a scale is not simply fp8_max / amax.
enum class ScaleClamp : std::uint8_t { kNone, kZeroAmax, kInfAmax, kScaleClamped };

struct ScaleFromAmax {
  float scale = 1.0F;
  ScaleClamp clamp = ScaleClamp::kNone;
};

struct ScaleOptions {
  float max_value = 448.0F;              ///< what amax maps to: fp8_max(format) * 2^-margin
  bool power_of_two = false;             ///< round the scale down to a power of two
  float epsilon = 0.0F;                  ///< amax below this is raised to it
  float value_for_infinity = kFloatMax;  ///< the scale when max_value / amax overflows
};

/// Whether RN(a / b) of positive numbers is Inf.
constexpr bool quotient_overflows(float a, float b) noexcept {
  if (std::is_constant_evaluated()) {
    // Constant evaluation rejects an fp32 overflow; in double there is none.
    constexpr double kRoundsToInfinity = 3.4028235677973366e38;  // FLT_MAX plus half an ulp: rounds to Inf
    return static_cast<double>(a) / static_cast<double>(b) >= kRoundsToInfinity;
  }
  return std::bit_cast<std::uint32_t>(a / b) == 0x7F800000U;
}

/// scale = RN(max_value / amax) with the corrections of the options; 1 for amax 0 or Inf. Neither scale nor
/// 1 / scale overflows or is zero. amax_bits is a non-negative, non-NaN float's pattern (kernels/amax.hpp).
constexpr ScaleFromAmax scale_from_amax(std::uint32_t amax_bits, const ScaleOptions& options) noexcept {
  float amax = std::bit_cast<float>(amax_bits);
  if (amax < options.epsilon) amax = options.epsilon;
  if (amax == 0.0F) return {1.0F, ScaleClamp::kZeroAmax};
  if (std::bit_cast<std::uint32_t>(amax) >= 0x7F800000U) return {1.0F, ScaleClamp::kInfAmax};
  ScaleFromAmax result;
  if (quotient_overflows(options.max_value, amax)) {
    result = {options.value_for_infinity, ScaleClamp::kScaleClamped};
  } else {
    result.scale = options.max_value / amax;
  }
  // Below this 1 / scale overflows. Only a maximum that a margin of 9 and more has lowered can get there,
  // with an amax near FLT_MAX.
  constexpr float kSmallestInvertible = 0x1p-127F;
  if (result.scale < kSmallestInvertible) result = {kSmallestInvertible, ScaleClamp::kScaleClamped};
  if (options.power_of_two) {
    result.scale = std::bit_cast<float>(std::bit_cast<std::uint32_t>(result.scale) & 0xFF800000U);
  }
  return result;
}

/// What the codes are multiplied by to decode: RN(1 / scale), as the reference's cast kernels write it.
constexpr float scale_inverse(float scale) noexcept { return 1.0F / scale; }

}  // namespace amaxscope

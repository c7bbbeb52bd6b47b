// Learning-rate schedules. A value type.
#pragma once

#include <cstdint>

namespace amaxscope::megatron {

enum class Decay { kConstant, kCosine };

struct LearningRate {
  double peak = 1e-3;
  double minimum = 0.0;  ///< what the cosine ends at
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< the cosine's end
  Decay decay = Decay::kConstant;

  /// peak * (step + 1) / warmup_steps while warming up, so that step 0 already moves; then by the decay.
  [[nodiscard]] double at(std::int64_t step) const noexcept;
};

}  // namespace amaxscope::megatron

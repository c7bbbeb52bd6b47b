#include "megatron/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace amaxscope::megatron {

double LearningRate::at(std::int64_t step) const noexcept {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (decay == Decay::kConstant) return peak;
  const auto span = static_cast<double>(std::max<std::int64_t>(total_steps - warmup_steps, 1));
  const double progress = std::min(static_cast<double>(step - warmup_steps) / span, 1.0);
  return minimum + 0.5 * (peak - minimum) * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace amaxscope::megatron

// LogFp8TensorStats: what FP8 quantization does to an operand, under the running recipe or another one.
// A statistic is [recipe_]stat[_columnwise].
#pragma once

#include "features/quantization_stats.hpp"

namespace amaxscope {

/// No value for a word that is none; `reason` then says what is wrong with one that is almost right.
std::optional<QuantizationStatName> parse_fp8_stat(std::string_view word, std::string& reason);

class LogFp8TensorStats final : public QuantizationStats {
 public:
  explicit LogFp8TensorStats(FeatureConfig config) : QuantizationStats(std::move(config), parse_fp8_stat) {}
};

FeatureEntry log_fp8_tensor_stats_entry();

}  // namespace amaxscope

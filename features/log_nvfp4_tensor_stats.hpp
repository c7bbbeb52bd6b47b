// LogNvfp4TensorStats: what NVFP4 does to an operand, or would do under another recipe. A statistic is
// stat[_columnwise], logged with nvfp4_ in front.
#pragma once

#include "features/quantization_stats.hpp"

namespace amaxscope {

/// No value for a word that is none; `reason` then says what is wrong with one that is almost right.
std::optional<QuantizationStatName> parse_nvfp4_stat(std::string_view word, std::string& reason);

class LogNvfp4TensorStats final : public QuantizationStats {
 public:
  explicit LogNvfp4TensorStats(FeatureConfig config)
      : QuantizationStats(std::move(config), parse_nvfp4_stat) {}
};

FeatureEntry log_nvfp4_tensor_stats_entry();

}  // namespace amaxscope

// What LogFp8TensorStats may be asked for.
#include "features/log_fp8_tensor_stats.hpp"

#include "features/inspecting.hpp"

namespace amaxscope {

FeatureEntry log_fp8_tensor_stats_entry() {
  FeatureSchema schema;
  schema.name = "LogFp8TensorStats";
  schema.doc =
      "Logs what FP8 quantization does to operands: [recipe_]statistic[_columnwise], under the running "
      "recipe or, with "
      "fp8_delayed_scaling_, fp8_current_scaling_, mxfp8_ or fp8_block_scaling_ in front, under that one.";
  schema.takes_tensors = true;
  schema.keys = {stats_key()};
  schema.statistics = quantization_statistics();
  const std::vector<StatSchema> of_scales = {
      {.name = "overflows%",
       .doc = "Percentage of elements beyond the largest FP8 value: under delayed scaling above it before "
              "the cast, else rounding past it."},
      {.name = "scale_inv_min", .doc = "Smallest factor that decodes a value."},
      {.name = "scale_inv_max", .doc = "Largest factor that decodes a value."}};
  schema.statistics.insert(schema.statistics.begin() + 1, of_scales.begin(), of_scales.end());
  schema.accepts_statistic = [](std::string_view word, std::string& reason) {
    return parse_fp8_stat(word, reason).has_value();
  };
  return {.schema = std::move(schema), .base_namespace = false, .make = [](FeatureConfig config) {
            return std::make_unique<LogFp8TensorStats>(std::move(config));
          }};
}

}  // namespace amaxscope

#include "features/builtin.hpp"

#include "features/compare_gemm.hpp"
#include "features/disable_quantization.hpp"
#include "features/dump_tensors.hpp"
#include "features/fake_quant.hpp"
#include "features/invariant_guard.hpp"
#include "features/log_fp8_tensor_stats.hpp"
#include "features/log_nvfp4_tensor_stats.hpp"
#include "features/log_tensor_stats.hpp"
#include "features/nonfinite_guard.hpp"
#include "features/per_tensor_scaling.hpp"
#include "features/recipe_override.hpp"
#include "features/trends.hpp"

namespace amaxscope {

FeatureRegistry builtin_features() {
  FeatureRegistry registry;
  registry.add(disable_quantization_gemm_entry());
  registry.add(disable_quantization_layer_entry());
  registry.add(per_tensor_scaling_entry());
  registry.add(fake_quant_entry());
  registry.add(invariant_guard_entry());
  registry.add(dump_tensors_entry());
  registry.add(log_tensor_stats_entry());
  registry.add(nonfinite_guard_entry());
  registry.add(log_fp8_tensor_stats_entry());
  registry.add(log_nvfp4_tensor_stats_entry());
  registry.add(compare_gemm_entry());
  registry.add(recipe_override_entry());
  registry.add(trends_entry());
  registry.add(base_log_tensor_stats_entry());
  return registry;
}

}  // namespace amaxscope

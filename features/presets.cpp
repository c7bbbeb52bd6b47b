#include "features/presets.hpp"

#include <array>

namespace amaxscope {

namespace {

constexpr std::string_view kWatch =
    R"(# watch: always on. What moves, what is lost to the format, and every equality that must hold.
watch:
  enabled: True
  layers:
    layer_types: [all]
  observe: .
  transformer_engine:
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient]
      freq: 10
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [cur_amax, nan, inf]
      freq: 100
    Trends:
      enabled: True
      tensors: [activation, gradient]
      freq: 100
watch_codes:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [saturated%, saturated_energy%, flushed%, flushed_energy%]
      freq: 100
)";

constexpr std::string_view kDiagnose =
    R"(# diagnose: what `amaxscope report` wants to know to name a cause. For a few hundred steps.
diagnose:
  enabled: True
  layers:
    layer_types: [all]
  observe: .
  transformer_engine:
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient, output]
diagnose_numbers:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors_struct:
        - tensor: activation
          stats: [cur_amax, peak_rms, nan, inf, {outlier_channels: {top: 2}}]
        - tensor: weight
          stats: [cur_amax, peak_rms, nan, inf, {outlier_channels: {top: 2}}, {outlier_rows: {top: 2}}]
        - tensor: gradient
          stats: [cur_amax, peak_rms, nan, inf, {outlier_channels: {top: 2}}]
      freq: 5
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [saturated%, saturated_energy%, flushed%, flushed_energy%, sqnr, fp8_current_scaling_sqnr,
              fp8_block_scaling_sqnr]
      freq: 5
    LogNvfp4TensorStats:
      enabled: True
      tensors: [gradient]
      stats: [sqnr, rounding_correlation]
      freq: 5
    Trends:
      enabled: True
      tensors: [activation, weight, gradient]
      freq: 5
    CompareGemm:
      enabled: True
      gemms: [fprop, dgrad, wgrad]
      freq: 50
diagnose_updates:
  enabled: True
  observe: (weight|bias)$
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [cur_amax, update_ratio, lost_updates%, adam_ratio]
      freq: 5
)";

constexpr std::string_view kNan = R"(# nan: where the first NaN or Inf comes from, and what came before it.
nan:
  enabled: True
  layers:
    layer_types: [all]
  observe: .
  transformer_engine:
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      action: dump
      last: 20
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient]
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [cur_amax, nan, inf]
      freq: 10
)";

constexpr std::string_view kGap =
    R"(# gap: why the loss is not that of high precision: which GEMM, which operand, and whether another recipe would help.
gap:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    CompareGemm:
      enabled: True
      gemms: [fprop, dgrad, wgrad]
      freq: 50
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [sqnr, saturated_energy%, flushed_energy%, fp8_current_scaling_sqnr, fp8_block_scaling_sqnr, mxfp8_sqnr,
              rounding_mean, rounding_z, rounding_correlation]
      freq: 50
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient]
      freq: 10
)";

constexpr std::string_view kFull = R"(# full: everything, at every iteration. For short runs.
full:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient, output]
    CompareGemm:
      enabled: True
      gemms: [fprop, dgrad, wgrad]
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [min, max, mean, std, rms, cur_amax, peak_rms, dynamic_range, skewness, kurtosis, nan, inf,
              {histogram: {bins: 32}}, {outliers: {threshold: 10}}]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, overflows%, saturated%, saturated_energy%, flushed%, flushed_energy%, scale_inv_min,
              scale_inv_max, scale_age, mse, sqnr, cosine, max_error, worst_blocks, rounding_mean, rounding_z,
              rounding_correlation, fp8_current_scaling_sqnr, fp8_block_scaling_sqnr, mxfp8_sqnr]
    LogNvfp4TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, sqnr]
    Trends:
      enabled: True
      tensors: [activation, weight, gradient]
      alarm: [amax_jump, saturation, oscillation]
full_observed:
  enabled: True
  observe: .
  transformer_engine:
    NonFiniteGuard:
      enabled: True
    InvariantGuard:
      enabled: True
      checks: [I1]
    LogTensorStats:
      enabled: True
      stats: [cur_amax, rms, nan, inf]
)";

constexpr std::array kPresets = {
    Preset{"watch", "always on: what moves, what is lost to the format, every equality that must hold",
           kWatch},
    Preset{"nan", "where the first NaN or Inf comes from, and what came before it", kNan},
    Preset{"diagnose", "what `amaxscope report` wants to know to name a cause, for a few hundred steps",
           kDiagnose},
    Preset{"gap", "why the loss is not that of high precision, and whether another recipe would help", kGap},
    Preset{"full", "everything at every iteration, for short runs", kFull},
};

}  // namespace

std::span<const Preset> presets() noexcept { return kPresets; }

const Preset* find_preset(std::string_view name) noexcept {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

std::string preset_names() {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (!names.empty()) names += ", ";
    names += preset.name;
  }
  return names;
}

}  // namespace amaxscope

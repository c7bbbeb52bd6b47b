// The configs of `sense`: what is left in high precision.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "report/precision_config.hpp"
#include "report/sensitivity.hpp"
#include "runtime/names.hpp"

namespace amaxscope::report {

namespace {

constexpr std::array kOperands = {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient};

std::vector<std::string> gemms_but(Gemm gemm) {
  std::vector<std::string> others;
  for (const Gemm other : kAllGemms) {
    if (other != gemm) others.emplace_back(to_string(other));
  }
  return others;
}

/// FakeQuant's word for the format that a recipe gives a kind of operand.
std::string fake_format(RecipeKind recipe, TensorKind tensor) {
  if (recipe == RecipeKind::kNvfp4) return "NVFP4";
  const bool e5m2 = operand_format(recipe, tensor) == DType::kE5M2;
  if (recipe == RecipeKind::kMxfp8) return e5m2 ? "MXFP8E5M2" : "MXFP8E4M3";
  if (recipe == RecipeKind::kBlock) return "FP8BLOCKE4M3";
  return e5m2 ? "FP8E5M2" : "FP8E4M3";
}

/// GEMMs in high precision, these operands as the recipe's format leaves them.
std::string fake_operands(RecipeKind recipe, const std::vector<TensorKind>& operands,
                          const std::vector<std::string>& layers) {
  std::vector<std::string> gemms;
  for (const Gemm gemm : kAllGemms) {
    std::vector<std::string> tensors;
    for (const TensorKind tensor : operands_of(gemm)) {
      if (std::ranges::find(operands, tensor) == operands.end()) continue;
      tensors.push_back(
          fmt::format("{{tensor: {}, quant_format: {}}}", to_string(tensor), fake_format(recipe, tensor)));
    }
    if (tensors.empty()) continue;
    gemms.push_back(
        fmt::format("{{gemm: {}, tensors_struct: [{}]}}", to_string(gemm), fmt::join(tensors, ", ")));
  }
  return config_section(
             "operands", these_layers(layers),
             fmt::format("FakeQuant: {{enabled: True, gemms_struct: [{}]}}", fmt::join(gemms, ", "))) +
         config_section("gemms", kAllLayers, kNoGemmQuantized);
}

Trial gemm_trial(Gemm gemm) {
  return {.kind = "gemm",
          .what = std::string(to_string(gemm)),
          .in_high_precision =
              config_section("gemm", kAllLayers, gemms_not_quantized({std::string(to_string(gemm))})),
          .alone_quantized = config_section("others", kAllLayers, gemms_not_quantized(gemms_but(gemm)))};
}

Trial tensor_trial(RecipeKind recipe, TensorKind tensor, const std::vector<std::string>& layers) {
  std::vector<TensorKind> others;
  for (const TensorKind other : kOperands) {
    if (other != tensor) others.push_back(other);
  }
  return {.kind = "tensor",
          .what = std::string(to_string(tensor)),
          .in_high_precision = fake_operands(recipe, others, layers),
          .alone_quantized = fake_operands(recipe, {tensor}, layers)};
}

std::string others_in_high_precision(const std::string& layer, const std::vector<std::string>& all) {
  std::vector<std::string> others;
  std::ranges::copy_if(all, std::back_inserter(others), [&](const auto& name) { return name != layer; });
  return others.empty() ? std::string() : config_section("others", these_layers(others), kNoGemmQuantized);
}

}  // namespace

std::string everything_in_high_precision() {
  return config_section("everything", kAllLayers, kNoGemmQuantized);
}

std::vector<Trial> sense_trials(std::span<const SensedLayer> layers, bool each_gemm) {
  std::vector<std::string> names;
  std::vector<RecipeKind> recipes;
  for (const SensedLayer& layer : layers) {
    if (layer.recipe == RecipeKind::kNone) continue;
    names.push_back(layer.name);
    recipes.push_back(layer.recipe);
  }
  AMAXSCOPE_CHECK(!names.empty(), ErrorCode::kUsage,
                  "none of the {} GEMM layers is quantized by a recipe, so no step depends on precision",
                  layers.size());
  std::vector<Trial> trials;
  for (const Gemm gemm : kAllGemms) trials.push_back(gemm_trial(gemm));
  if (std::ranges::all_of(recipes, [&](RecipeKind recipe) { return recipe == recipes.front(); })) {
    for (const TensorKind tensor : kOperands) trials.push_back(tensor_trial(recipes.front(), tensor, names));
  }
  for (const std::string& name : names) {
    trials.push_back({.kind = "layer",
                      .what = name,
                      .in_high_precision = config_section("layer", these_layers({name}), kNoGemmQuantized),
                      .alone_quantized = others_in_high_precision(name, names)});
  }
  if (!each_gemm) return trials;
  for (const std::string& name : names) {
    for (const Gemm gemm : kAllGemms) {
      trials.push_back(
          {.kind = "gemm of a layer",
           .what = fmt::format("{} of {}", to_string(gemm), name),
           .in_high_precision = config_section("gemm", these_layers({name}),
                                               gemms_not_quantized({std::string(to_string(gemm))})),
           .alone_quantized =
               config_section("gemms", these_layers({name}), gemms_not_quantized(gemms_but(gemm))) +
               others_in_high_precision(name, names)});
    }
  }
  return trials;
}

}  // namespace amaxscope::report

#include "runtime/quantizers/plan_check.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "runtime/quantizers/tensor_plan.hpp"

namespace amaxscope {

namespace {

constexpr TensorKind result_of(Gemm gemm) noexcept {
  switch (gemm) {
    case Gemm::kFprop:
      return TensorKind::kOutput;
    case Gemm::kDgrad:
      return TensorKind::kDgrad;
    case Gemm::kWgrad:
      break;
  }
  return TensorKind::kWgrad;
}

std::array<TensorKind, 3> tensors_of(Gemm gemm) noexcept {
  const auto [a, b] = operands_of(gemm);
  return {a, b, result_of(gemm)};
}

/// The iterations at which a feature's answers change, beginning with 0.
void add_change_points(const LayerDescription& layer, const Feature& feature,
                       std::set<std::int64_t>& points) {
  std::int64_t iteration = 0;
  for (int count = 0; count < kPlanCheckPoints; ++count) {
    points.insert(iteration);
    std::optional<std::int64_t> next;
    for (const Gemm gemm : kAllGemms) {
      next = earlier(next, feature.fp8_gemm_enabled(layer, gemm, iteration).next);
      for (const TensorKind tensor : tensors_of(gemm)) {
        next = earlier(next, feature.modify_tensor_enabled(layer, gemm, tensor, iteration).next);
      }
    }
    if (!next) return;
    AMAXSCOPE_CHECK(*next > iteration, ErrorCode::kInternal,
                    "{} decides at iteration {} that its next change is at iteration {}", feature.label(),
                    iteration, *next);
    iteration = *next;
  }
}

const Feature* modifier_of(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                           std::span<Feature* const> features, std::int64_t iteration) {
  const Feature* modifier = nullptr;
  for (const Feature* feature : features) {
    if (!feature->modify_tensor_enabled(layer, gemm, tensor, iteration).enabled) continue;
    if (modifier != nullptr) throw modify_conflict(layer, gemm, tensor, *modifier, *feature, iteration);
    modifier = feature;
  }
  return modifier;
}

struct Operand {
  TensorKind tensor;
  const Feature* modifier = nullptr;
  bool quantized = false;

  [[nodiscard]] std::string why(bool has_recipe, const std::vector<std::string>& disabling) const {
    if (modifier != nullptr) return fmt::format("by {}", modifier->label());
    if (quantized) return "by the recipe";
    return has_recipe ? fmt::format("because of {}", fmt::join(disabling, " and "))
                      : std::string("because the layer has no recipe");
  }
};

void check_gemm(const LayerDescription& layer, Gemm gemm, std::span<Feature* const> features, bool has_recipe,
                std::int64_t iteration) {
  std::vector<std::string> disabling;
  for (const Feature* feature : features) {
    if (!feature->fp8_gemm_enabled(layer, gemm, iteration).enabled) disabling.push_back(feature->label());
  }
  std::array<Operand, 2> operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Operand& operand = operands[i];
    operand.tensor = operands_of(gemm)[i];
    operand.modifier = modifier_of(layer, gemm, operand.tensor, features, iteration);
    operand.quantized = operand.modifier != nullptr
                            ? operand.modifier->modifies_to_quantized(layer, gemm, operand.tensor)
                            : has_recipe && disabling.empty();
  }
  modifier_of(layer, gemm, result_of(gemm), features, iteration);
  if (operands[0].quantized == operands[1].quantized) return;
  const Operand& codes = operands[0].quantized ? operands[0] : operands[1];
  const Operand& plain = operands[0].quantized ? operands[1] : operands[0];
  throw Error(
      ErrorCode::kConfig,
      fmt::format(
          "layer {}: at iteration {} {} would multiply {}, quantized {}, with {}, in high precision {}; "
          "both operands of a GEMM must be quantized or neither",
          layer.name, iteration, to_string(gemm), to_string(codes.tensor), codes.why(has_recipe, disabling),
          to_string(plain.tensor), plain.why(has_recipe, disabling)));
}

}  // namespace

void check_plans(const LayerDescription& layer, std::span<Feature* const> features, bool has_recipe) {
  std::set<std::int64_t> points;
  for (const Feature* feature : features) add_change_points(layer, *feature, points);
  for (const std::int64_t iteration : points) {
    for (const Gemm gemm : kAllGemms) check_gemm(layer, gemm, features, has_recipe, iteration);
  }
}

}  // namespace amaxscope

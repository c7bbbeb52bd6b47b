// A feature that answers what a test tells it to, and writes down what it is asked; a recipe's quantizer that
// counts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::testing_support {

inline FeatureConfig named_config(std::string name, std::string section) {
  FeatureConfig config;
  config.name = std::move(name);
  config.section = std::move(section);
  return config;
}

class ScriptedFeature final : public Feature {
 public:
  using Feature::Feature;
  explicit ScriptedFeature(std::string name, std::string section = "s")
      : Feature(named_config(std::move(name), std::move(section))) {}

  [[nodiscard]] bool alters_numerics() const override { return true; }
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription&, Gemm gemm,
                                          std::int64_t iteration) const override {
    ++fp8_asked;
    return fp8 ? fp8(gemm, iteration) : Decision::always();
  }
  [[nodiscard]] Decision modify_tensor_enabled(const LayerDescription&, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const override {
    ++modify_asked;
    return modifies ? modifies(gemm, tensor, iteration) : Decision::never();
  }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&,
                                                std::int64_t iteration) const override {
    ++inspect_asked;
    return inspects ? inspects(iteration) : Decision::never();
  }
  [[nodiscard]] bool modifies_to_quantized(const LayerDescription&, Gemm, TensorKind) const override {
    return to_codes;
  }
  [[nodiscard]] std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext& context) override {
    calls.push_back(std::string("modify") + (context.usage.rowwise ? " rowwise" : "") +
                    (context.usage.columnwise ? " columnwise" : ""));
    iterations.push_back(context.iteration);
    return modify(context);
  }
  void inspect_tensor(const InspectContext& context) override {
    calls.emplace_back("inspect");
    iterations.push_back(context.iteration);
    if (inspect) inspect(context);
  }

  std::function<Decision(Gemm, std::int64_t)> fp8;
  std::function<Decision(Gemm, TensorKind, std::int64_t)> modifies;
  std::function<Decision(std::int64_t)> inspects;
  bool to_codes = false;
  std::function<std::shared_ptr<QuantizedTensor>(const ModifyContext&)> modify;
  std::function<void(const InspectContext&)> inspect;

  std::vector<std::string> calls;
  std::vector<std::int64_t> iterations;
  mutable int fp8_asked = 0;
  mutable int modify_asked = 0;
  mutable int inspect_asked = 0;
};

/// Modifies one tensor in some GEMMs, always.
inline std::function<Decision(Gemm, TensorKind, std::int64_t)> always_in(std::vector<Gemm> gemms,
                                                                         TensorKind tensor) {
  return [gemms = std::move(gemms), tensor](Gemm gemm, TensorKind asked, std::int64_t) {
    for (const Gemm one : gemms) {
      if (one == gemm && asked == tensor) return Decision::always();
    }
    return Decision::never();
  };
}

/// Every element becomes this value, in high precision.
inline std::function<std::shared_ptr<QuantizedTensor>(const ModifyContext&)> fill_with(float value) {
  return [value](const ModifyContext& context) {
    const std::vector<float> values(static_cast<std::size_t>(context.x.numel()), value);
    return std::make_shared<HighPrecisionTensor>(Tensor::of<float>(values, context.x.shape()));
  };
}

/// Codes under this scale, in the directions asked for.
inline std::function<std::shared_ptr<QuantizedTensor>(const ModifyContext&)> codes_under(float scale) {
  return [scale](const ModifyContext& context) {
    return quantize_float8(context.x, DType::kE4M3, scale, context.usage);
  };
}

/// Codes under scale 1.
class CountingQuantizer final : public Quantizer {
 public:
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment&) override {
    asked.push_back(usage);
    return quantize_float8(x, DType::kE4M3, 1.0F, usage);
  }
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment&) override {
    ++updates;
    requantize_float8(x, 1.0F, target);
  }
  [[nodiscard]] RecipeKind recipe() const noexcept override { return RecipeKind::kDelayed; }
  [[nodiscard]] DType format() const noexcept override { return DType::kE4M3; }

  std::vector<Usage> asked;
  int updates = 0;
};

}  // namespace amaxscope::testing_support

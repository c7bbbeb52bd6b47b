#include "runtime/quantizers/quantizer_factory.hpp"

#include "core/error.hpp"

namespace amaxscope {

namespace {

std::shared_ptr<Quantizer> make_delayed(const QuantizerRequest& request, DType format) {
  AMAXSCOPE_CHECK(request.delayed != nullptr, ErrorCode::kUsage,
                  "{}: delayed scaling needs a DelayedScalingState, which keeps its amax history",
                  request.name);
  return std::make_shared<Float8Quantizer>(*request.delayed, request.delayed->add(request.name, format));
}

/// Source of the defaults: TransformerEngine's recipe/__init__.py.
std::shared_ptr<Quantizer> make_nvfp4(const QuantizerRequest& request, DType format) {
  AMAXSCOPE_CHECK(format == DType::kE2M1, ErrorCode::kUsage, "{}: nvfp4 with codes of {}; they are e2m1",
                  request.name, to_string(format));
  const Nvfp4Options& options = request.options.nvfp4;
  const bool weight = request.tensor == TensorKind::kWeight;
  const bool gradient = request.tensor == TensorKind::kGradient;
  const Nvfp4Usage usage{.rotate_columnwise = !weight && options.random_hadamard,
                         .stochastic_rounding = gradient && options.stochastic_rounding,
                         .two_dimensional = weight && options.two_dimensional_weights,
                         .four_over_six = !gradient && options.four_over_six};
  return std::make_shared<Nvfp4Quantizer>(usage, options, request.reduce_amaxes, request.name);
}

}  // namespace

std::shared_ptr<Quantizer> make_quantizer(const QuantizerRequest& request) {
  AMAXSCOPE_CHECK(!is_result(request.tensor), ErrorCode::kUsage,
                  "{}: {} is the result of a GEMM; quantizers are for activation, weight and gradient",
                  request.name, to_string(request.tensor));
  const DType format = request.format.value_or(operand_format(request.recipe, request.tensor));
  switch (request.recipe) {
    case RecipeKind::kDelayed:
      return make_delayed(request, format);
    case RecipeKind::kCurrent:
      return std::make_shared<Float8CurrentScalingQuantizer>(format, request.options.current,
                                                             request.reduce_amaxes, request.name);
    case RecipeKind::kMxfp8:
      return std::make_shared<Mxfp8Quantizer>(
          format, request.options.mxfp8.two_dimensional_weights && request.tensor == TensorKind::kWeight,
          request.name);
    case RecipeKind::kBlock:
      return std::make_shared<Float8BlockQuantizer>(format, request.tensor == TensorKind::kWeight,
                                                    request.options.block, request.name);
    case RecipeKind::kNvfp4:
      return make_nvfp4(request, format);
    case RecipeKind::kNone:
      break;
  }
  throw Error(ErrorCode::kUsage, fmt::format("{}: no recipe, no quantizer", request.name));
}

}  // namespace amaxscope

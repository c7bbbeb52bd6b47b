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
    default:
      throw Error(ErrorCode::kUsage, fmt::format("{}: recipe {} is not built yet; built: delayed, current",
                                                 request.name, to_string(request.recipe)));
  }
}

}  // namespace amaxscope

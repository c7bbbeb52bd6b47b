#include "features/compare_gemm.hpp"

#include <fmt/format.h>

#include "features/inspecting.hpp"
#include "kernels/gemm_error.hpp"
#include "runtime/stats/gemm_error_accumulator.hpp"

namespace amaxscope {

namespace {

/// The keys for the GEMM whose result this is; null when it is none of the listed.
const FeatureParams* params_of_result(const FeatureConfig& config, const InspectedTensor& tensor) {
  if (!tensor.kind || !is_result(*tensor.kind)) return nullptr;
  return config.params(gemm_of(*tensor.kind, Direction::kRowwise), std::nullopt);
}

GemmOperand original_operand(const TensorView& original, TensorKind tensor, Gemm gemm) {
  return {original.reshaped({original.rows(), original.cols()}),
          direction_of(tensor, gemm) == Direction::kColumnwise, 1.0F};
}

}  // namespace

void CompareGemm::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  const FeatureParams* params = params_of_result(config(), tensor);
  if (params == nullptr) return;
  const Gemm gemm = *gemm_of(*tensor.kind, Direction::kRowwise);
  cells_[&tensor] = &registration.declare(tensor, params->schedule,
                                          [gemm] { return std::make_unique<GemmErrorAccumulator>(gemm); });
}

Decision CompareGemm::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  const FeatureParams* params = params_of_result(config(), tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

void CompareGemm::inspect_tensor(const InspectContext& seen) {
  const auto found = cells_.find(&seen.tensor);
  if (found == cells_.end()) return;
  const Gemm gemm = *gemm_of(*seen.tensor.kind, Direction::kRowwise);
  const auto operands = operands_of(gemm);
  if (seen.gemm == nullptr) return say_once(seen.tensor, "the operands of this GEMM");
  if (!seen.gemm->original_a) return say_once(seen.tensor, to_string(operands[0]));
  if (!seen.gemm->original_b) return say_once(seen.tensor, to_string(operands[1]));
  auto& accumulator = static_cast<GemmErrorAccumulator&>(found->second->of(seen.moment.phase));
  if (!counts(seen, accumulator)) return;
  const InspectContext& context = seen.on_host();
  const GemmInputs& inputs = *context.gemm;
  accumulator.feed(gemm_error(inputs.a, inputs.b, original_operand(*inputs.original_a, operands[0], gemm),
                              original_operand(*inputs.original_b, operands[1], gemm), context.x));
}

void CompareGemm::say_once(const InspectedTensor& tensor, std::string_view missing) {
  if (!said_.insert(&tensor).second || !warn_) return;
  warn_(fmt::format("{}: {} of {} is skipped: the layer does not hand in {} in high precision", tensor.layer,
                    config().name, tensor.name, missing));
}

FeatureEntry compare_gemm_entry() {
  return {.schema = {.name = "CompareGemm",
                     .doc = "Does the listed GEMMs (fprop, dgrad, wgrad) a second time in fp64 from the "
                            "unquantized operands and logs, for the result, relative_error, cosine, sqnr, "
                            "which share of the error comes from which operand, from accumulation and from "
                            "the rest, and for wgrad gradient_noise and gradient_bias.",
                     .takes_gemms = true,
                     .addition = true},
          .make = [](FeatureConfig config) { return std::make_unique<CompareGemm>(std::move(config)); }};
}

}  // namespace amaxscope

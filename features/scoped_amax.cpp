#include "features/scoped_amax.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kKey = "amax_scope";

}  // namespace

KeySchema amax_scope_key() {
  return {
      .name = std::string(kKey),
      .type = KeyType::kString,
      .default_text = "the session's, normally tensor",
      .doc =
          "Which tensor-parallel ranks share a scale: tensor, those that hold parts of one tensor, so that "
          "the "
          "scale does not depend on the number of ranks; te, where the reference's current-scaling recipe "
          "reduces, which is where codes are gathered; local, none.",
      .allowed = {"tensor", "te", "local"},
      .addition = true};
}

AmaxScope amax_scope_of(const FeatureParams& params, AmaxScope session_default) {
  return parse_amax_scope(params.get_string(kKey, to_string(session_default))).value_or(session_default);
}

bool lists_amax_over_tp(const FeatureConfig& config, const InspectedTensor& weight, std::int64_t iteration,
                        AmaxScope session_default, bool (*has_amax)(const FeatureParams&)) {
  return std::ranges::any_of(kAllGemms, [&](Gemm gemm) {
    const FeatureParams* const params = config.params(gemm, TensorKind::kWeight);
    return params != nullptr && params->schedule.due(iteration) && has_amax(*params) &&
           reduces_amax(amax_scope_of(*params, session_default), *weight.description, TensorKind::kWeight);
  });
}

Float8Scale scoped_scale(const ModifyContext& context, const ScaleOptions& options) {
  if (context.tp_amax != nullptr &&
      reduces_amax(amax_scope_of(context.params, context.amax_scope), context.layer, context.tensor)) {
    const std::optional<std::uint32_t> known =
        context.tp_amax->known(context.layer.name, to_string(context.tensor), context.x);
    if (known) return scale_from_amax(*known, options).scale;
  }
  return scale_of_tensor(context.x, options,
                         [&](const MutableTensorView& amaxes) { reduce_scoped(context, amaxes); })
      .scale;
}

void reduce_scoped(const ModifyContext& context, const MutableTensorView& amaxes) {
  const AmaxScope scope = amax_scope_of(context.params, context.amax_scope);
  if (!reduces_amax(scope, context.layer, context.tensor)) return;
  AMAXSCOPE_CHECK(
      context.tp_amax != nullptr, ErrorCode::kInternal,
      "layer {}: the amax of {} is to be reduced over {} ranks, but there is nothing to reduce it with",
      context.layer.name, to_string(context.tensor), context.layer.tp_group->size());
  context.tp_amax->reduce_where_it_is(amaxes, {.traffic = Traffic::kDebug,
                                               .what = "amax",
                                               .layer = context.layer.name,
                                               .tensor = to_string(context.tensor)});
}

}  // namespace amaxscope

#include "features/scoped_quantizers.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "features/scoped_amax.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope {

Quantizer& ScopedQuantizers::quantizer_for(const ModifyContext& context, RecipeKind recipe, DType format) {
  std::shared_ptr<Quantizer>& slot = quantizers_[{context.layer.name, context.tensor, recipe, format}];
  if (slot != nullptr) return *slot;
  // Stochastic rounding: one stream for ranks that hold the same tensor, others for ranks that hold parts or
  // other tokens.
  const bool replicated = layout_of(context.layer, context.tensor) == Layout::kReplicated;
  const Communicator* tp = context.layer.tp_group;
  QuantizerRequest request;
  request.recipe = recipe;
  request.tensor = is_result(context.tensor) ? TensorKind::kActivation : context.tensor;
  request.format = format;
  request.name = fmt::format("{}.{}", context.layer.name, to_string(context.tensor));
  request.options.nvfp4.seed =
      static_cast<std::uint64_t>(replicated && tp != nullptr ? tp->world_ranks().front() : world_rank_);
  request.reduce_amaxes = [this](const MutableTensorView& amaxes) { reduce_scoped(*now_, amaxes); };
  slot = make_quantizer(request);
  if (auto* const drawing = dynamic_cast<Nvfp4Quantizer*>(slot.get());
      drawing != nullptr && kept_ != nullptr) {
    kept_->keep(
        fmt::format("drawn {}", request.name), [drawing] { return KeptState::Words{drawing->calls()}; },
        [drawing, name = request.name](const KeptState::Words& words) {
          AMAXSCOPE_CHECK(words.size() == 1, ErrorCode::kInput,
                          "the saved place in the random stream of {} has {} words, expected 1", name,
                          words.size());
          drawing->set_calls(words[0]);
        });
  }
  return *slot;
}

std::shared_ptr<QuantizedTensor> ScopedQuantizers::quantize(const ModifyContext& context, RecipeKind recipe,
                                                            DType format, const TensorView& x, Usage usage) {
  now_ = &context;
  return quantizer_for(context, recipe, format).quantize(x, usage, context.moment);
}

}  // namespace amaxscope

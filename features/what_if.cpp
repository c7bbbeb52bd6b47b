#include "features/what_if.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "features/padded.hpp"
#include "kernels/amax.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope {

namespace {

TensorKind kind_of(const InspectedTensor& tensor) { return tensor.kind.value_or(TensorKind::kActivation); }

bool is_reduced(const InspectContext& context) {
  const Layout layout = context.tensor.layout;
  return context.tp_amax != nullptr && (layout == Layout::kShard0 || layout == Layout::kShard1);
}

void reduce_over_shards(const InspectContext& context, const MutableTensorView& amaxes) {
  const InspectedTensor& tensor = context.tensor;
  if (!is_reduced(context)) return;
  context.tp_amax->reduce_where_it_is(amaxes,
                                      {.what = "what-if amax", .layer = tensor.layer, .tensor = tensor.name});
}

/// Of all ranks' shards.
std::uint32_t whole_amax(const InspectContext& context) {
  if (is_reduced(context)) {
    const std::optional<std::uint32_t> known =
        context.tp_amax->known(context.tensor.layer, context.tensor.name, context.x);
    if (known) return *known;
  }
  std::uint32_t amax = context.x.numel() == 0 ? 0U : context.amax();
  reduce_over_shards(context, MutableTensorView(&amax, DType::kU32, Shape{1}));
  return amax;
}

/// Takes out what padding with zeros brought in: elements that are exact and blocks of nothing else.
void take_out_padding(const TensorView& x, std::int64_t multiple, const BlockLayout& layout,
                      BlockQuantizationError& error) {
  const std::int64_t rows = BlockLayout::up(x.rows(), multiple);
  const std::int64_t cols = BlockLayout::up(x.cols(), multiple);
  const auto added = static_cast<std::uint64_t>(rows * cols - x.numel());
  if (added == 0) return;
  const auto blocks_of = [&](std::int64_t m, std::int64_t k) {
    const auto covering = [](std::int64_t extent, std::int64_t block) {
      return (extent + block - 1) / block;
    };
    return covering(m, layout.block_rows) * covering(k, layout.block_cols);
  };
  const auto padding_blocks =
      static_cast<std::uint64_t>(blocks_of(rows, cols) - blocks_of(x.rows(), x.cols()));
  error.elements.numel -= added;
  error.elements.compared -= std::min(added, error.elements.compared);
  error.blocks -= padding_blocks;
  error.zero_blocks -= padding_blocks;
}

}  // namespace

WhatIf::WhatIf(RecipeKind recipe, const InspectedTensor& tensor)
    : recipe_(recipe), format_(operand_format(recipe, kind_of(tensor))) {
  std::string name = fmt::format("{}.{}", tensor.layer, tensor.name);
  if (recipe == RecipeKind::kDelayed) {
    history_.emplace(format_, std::move(name));
  } else if (recipe != RecipeKind::kCurrent) {
    QuantizerRequest request;
    request.recipe = recipe;
    request.tensor = kind_of(tensor);
    request.name = std::move(name);
    request.reduce_amaxes = [this](const MutableTensorView& amaxes) {
      if (now_ != nullptr) reduce_over_shards(*now_, amaxes);
    };
    quantizer_ = make_quantizer(request);
  }
}

Measured WhatIf::under_one_scale(const InspectContext& context) const {
  float scale = 1.0F;
  Measured measured;
  if (history_) {
    const DelayedScalingState::Slot& slot = history_->slot();
    scale = slot.scale;
    measured.flags = flags_of(slot.clamp);
    if (!slot.has_history) measured.flags.emplace_back("no_history");
  } else {
    const ScaleFromAmax from_amax = scale_from_amax(whole_amax(context), {.max_value = fp8_max(format_)});
    scale = from_amax.scale;
    measured.flags = flags_of(from_amax.clamp);
  }
  measured.scale = scale;
  measured.format = format_name(format_);
  measured.error.scale_min = measured.error.scale_max = scale_inverse(scale);
  return measured;
}

Measured WhatIf::measure_one_scale(const InspectContext& context, bool with_rounding) const {
  Measured measured = under_one_scale(context);
  if (context.x.numel() == 0) return measured;
  if (!with_rounding) {
    measured.error.elements = quantization_error_of_cast(context.x, format_, measured.scale);
    return measured;
  }
  const auto codes =
      quantize_float8(context.x, format_, measured.scale, {.rowwise = true, .columnwise = false});
  std::vector<std::string> flags = std::move(measured.flags);
  measured = measure_codes(context.x, *codes, Direction::kRowwise, nullptr, true);
  measured.flags = std::move(flags);
  return measured;
}

MadeScale WhatIf::scale_on_device(const InspectContext& context) const {
  if (history_) {
    AMAXSCOPE_CHECK(!context.captured(), ErrorCode::kUsage,
                    "what delayed scaling would do follows a history that the host keeps");
    return {Float8Scale(history_->slot().scale).beside(context.x), {}};
  }
  AMAXSCOPE_CHECK(
      !context.captured() || !is_reduced(context), ErrorCode::kUsage,
      "what another recipe would do takes an amax over the tensor-parallel ranks, which replays would "
      "do in every iteration, due or not");
  return scale_of_tensor(context.x, {.max_value = fp8_max(format_)},
                         [&](const MutableTensorView& amaxes) { reduce_over_shards(context, amaxes); });
}

WhatIf::Result WhatIf::measure(const InspectContext& context, Usage wanted, bool with_rounding) {
  Result measured;
  if (quantizer_ == nullptr) {
    measured.front() = measure_one_scale(context, with_rounding);
    if (wanted.columnwise) measured.back() = measured.front();
    return measured;
  }
  const Padded padded(context.x, required_multiple(recipe_));
  now_ = &context;
  std::shared_ptr<QuantizedTensor> codes;
  try {
    codes = quantizer_->quantize(padded.view(), wanted, context.moment);
  } catch (...) {
    now_ = nullptr;
    throw;
  }
  now_ = nullptr;
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    if (!wanted.has(direction)) continue;
    std::optional<Measured>& result = measured[static_cast<std::size_t>(direction)];
    result = measure_codes(padded.view(), *codes, direction, nullptr, with_rounding);
    if (context.x.numel() == 0) continue;
    take_out_padding(context.x, required_multiple(recipe_),
                     dynamic_cast<const BlockScaledTensor&>(*codes).layout(direction), result->error);
  }
  return measured;
}

WhatIf::Parts WhatIf::start(const InspectContext& context, Usage wanted) const {
  Parts parts{.wanted = wanted};
  if (has_one_scale()) {
    parts.result.front() = under_one_scale(context);
    return parts;
  }
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    if (wanted.has(direction)) parts.result[static_cast<std::size_t>(direction)].emplace();
  }
  return parts;
}

void WhatIf::add_rows(const TensorView& rows, std::int64_t first_row, const TensorMoment& moment,
                      Parts& parts) const {
  if (has_one_scale()) {
    Measured& measured = *parts.result.front();
    add_quantization_error_of_cast(rows, format_, measured.scale, measured.error.elements);
    return;
  }
  const Padded padded(rows, required_multiple(recipe_));
  const auto codes = quantizer_->quantize(padded.view(), parts.wanted, moment);
  const auto& blocks = dynamic_cast<const BlockScaledTensor&>(*codes);
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    if (!parts.wanted.has(direction)) continue;
    Measured& measured = *parts.result[static_cast<std::size_t>(direction)];
    measured.format = blocks.format_name(direction);
    parts.layouts[static_cast<std::size_t>(direction)] = blocks.layout(direction);
    add_quantization_error(padded.view(), blocks.blocks(direction), first_row, measured.error);
  }
}

WhatIf::Result WhatIf::finish(const TensorView& x, Parts parts) const {
  if (has_one_scale()) {
    if (parts.wanted.columnwise) parts.result.back() = parts.result.front();
    return std::move(parts.result);
  }
  for (std::size_t i = 0; i < parts.result.size(); ++i) {
    if (!parts.result[i]) continue;
    take_out_padding(x, required_multiple(recipe_), parts.layouts[i], parts.result[i]->error);
  }
  return std::move(parts.result);
}

}  // namespace amaxscope

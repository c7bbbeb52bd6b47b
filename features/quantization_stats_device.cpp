// Statistics of codes under one scale on a device: kernels count, step() feeds.
#include <array>
#include <utility>

#include "core/error.hpp"
#include "features/quantization_codes.hpp"
#include "features/quantization_stats.hpp"
#include "kernels/cast.hpp"
#include "kernels/device_kernels.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope {

namespace {

/// DeviceResults::Key::kind of what a recipe would do; directions of the running codes come before.
constexpr int kFirstWhatIf = 2;

void refuse_in_capture(const InspectContext& context, std::string_view what) {
  AMAXSCOPE_CHECK(!context.captured(), ErrorCode::kUsage, "{} computed on the host", what);
}

std::vector<std::string> flags_of_slot(const DelayedScalingState::Slot& slot) {
  std::vector<std::string> flags = flags_of(slot.clamp);
  if (!slot.has_history) flags.emplace_back("no_history");
  return flags;
}

}  // namespace

bool QuantizationStats::defer(Measure& measure, QuantizationAccumulator& accumulator, const Now& now) const {
  const InspectContext& context = now.context;
  if (!context.defers()) return false;
  if (now.state.with_rounding) {
    refuse_in_capture(context, "statistics of rounding are");
    return false;
  }
  const QuantizationStatName& name = measure.request.name;
  DeviceResults::Request request = deferred(context, accumulator, now.state.params->schedule);
  request.key.owner = this;
  request.bytes = sizeof(Accumulated<ScaledError>);
  std::string format;

  RunningCodes running;
  if (measure.recipe == context.tensor.recipe) running = running_codes(name, context);
  if (running.codes != nullptr && (!name.recipe || is_of(*running.codes, measure.recipe))) {
    const auto* const codes = dynamic_cast<const Float8Tensor*>(running.codes);
    if (codes == nullptr) {
      refuse_in_capture(context, "statistics of blocks are");
      return false;
    }
    request.key.kind = static_cast<int>(running.direction);
    format = codes->format_name(running.direction);
    request_running(*codes, measure, request, context);
  } else {
    const auto what_if = now.state.what_ifs.find(measure.recipe);
    if (!name.recipe || what_if == now.state.what_ifs.end()) return true;  // no codes, nothing to count
    if (!what_if->second->has_one_scale()) {
      refuse_in_capture(context, "statistics of blocks are");
      return false;
    }
    request.key.kind = kFirstWhatIf + static_cast<int>(measure.recipe);
    format = format_name(what_if->second->format());
    request_what_if(*what_if->second, measure, request, context);
  }

  const bool training = context.moment.phase != Phase::kEval;
  request.take = [&measure, &accumulator, format, training](const std::byte* there, std::int64_t iteration) {
    take(measure, accumulator, result_at<ScaledError>(there), format,
         training ? std::optional(iteration) : std::nullopt);
  };
  context.device_results->add(context.x, std::move(request));
  return true;
}

void QuantizationStats::request_running(const Float8Tensor& codes, Measure& measure,
                                        DeviceResults::Request& request,
                                        const InspectContext& context) const {
  const Quantizer* const recipes = context.quantizer == nullptr ? nullptr : &context.quantizer->unwrapped();
  const auto* const current = dynamic_cast<const Float8CurrentScalingQuantizer*>(recipes);
  request.note = [&measure, delayed = dynamic_cast<const Float8Quantizer*>(recipes)] {
    measure.noted_scale = 0.0F;
    measure.noted_flags.clear();
    if (delayed == nullptr) return;
    // A feature may have made other codes, and a cached weight may be older than the scale.
    measure.noted_scale = delayed->slot().scale;
    measure.noted_flags = flags_of_slot(delayed->slot());
  };
  request.launch = [&codes, &x = context.x, current](const ResultSlot& slot) {
    Tensor turned;
    TensorView logical;
    if (codes.usage().rowwise) {
      logical = codes.codes(Direction::kRowwise).view();
    } else {
      turned = Tensor::beside(x, codes.format(Direction::kColumnwise), {x.rows(), x.cols()});
      transpose(codes.codes(Direction::kColumnwise), turned);
      logical = turned.view();
    }
    ScaledQuantization what{.x = x,
                            .codes = logical.reshaped(x.shape()),
                            .format = logical.dtype(),
                            .scale = codes.scales().scale_view(),
                            .scale_inv = codes.scales().scale_inv_view()};
    if (current != nullptr && current->last().on_device() != nullptr) {
      what.amax = current->last().on_device()->view();
      what.options = current->last().options();
    }
    device_kernels("quantization_error", x)->add_quantization_error(what, slot);
  };
}

void QuantizationStats::request_what_if(const WhatIf& what_if, Measure& measure,
                                        DeviceResults::Request& request,
                                        const InspectContext& context) const {
  request.note = [&measure, &what_if] {
    measure.noted_scale = 0.0F;
    measure.noted_flags.clear();
    if (const DelayedHistory* history = what_if.history())
      measure.noted_flags = flags_of_slot(history->slot());
  };
  request.launch = [&what_if, &context](const ResultSlot& slot) {
    const MadeScale made = what_if.scale_on_device(context);
    ScaledQuantization what{.x = context.x,
                            .format = what_if.format(),
                            .scale = made.scale.scale_view(),
                            .scale_inv = made.scale.scale_inv_view()};
    if (const Tensor* const amax = made.origin.on_device()) {
      what.amax = amax->view();
      what.options = made.origin.options();
    }
    device_kernels("quantization_error", context.x)->add_quantization_error(what, slot);
  };
}

void QuantizationStats::take(Measure& measure, QuantizationAccumulator& accumulator, const ScaledError& sum,
                             const std::string& format, std::optional<std::int64_t> iteration) {
  QuantizationSample sample;
  sample.measured.elements = sum.error;
  sample.measured.scale_min = sum.scale_inv_min;
  sample.measured.scale_max = sum.scale_inv_max;
  if (measure.request.name.recipe) sample.format = format;
  if (measure.noted_scale == 0.0F || measure.noted_scale == sum.first_scale ||
      measure.noted_scale == sum.last_scale) {
    sample.flags = measure.noted_flags;
  }
  for (const ScaleClamp clamp : {ScaleClamp::kZeroAmax, ScaleClamp::kInfAmax, ScaleClamp::kScaleClamped}) {
    if ((sum.clamps >> static_cast<unsigned>(clamp) & 1U) == 0) continue;
    for (std::string& flag : flags_of(clamp)) sample.flags.push_back(std::move(flag));
  }
  if (iteration && sum.error.numel != 0) {
    sample.scale_age = measure.age_of({sum.first_scale, sum.last_scale, sum.scale_changed != 0}, *iteration);
  }
  accumulator.feed(sample);
}

}  // namespace amaxscope

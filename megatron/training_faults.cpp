#include "megatron/training_faults.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "megatron/ops/elementwise.hpp"

namespace amaxscope::megatron {

namespace {

constexpr double kGrowth = 1.02;  ///< of a channel's weights in a step

std::string weight_of(const Fault& fault) { return fault.layer + ".weight"; }

template <class T>
void align_and_grow(std::span<T> gate, std::span<T> up) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = static_cast<T>(static_cast<double>(gate[i]) * kGrowth);
    up[i] = gate[i];
  }
}

}  // namespace

TrainingFaults::TrainingFaults(const FaultTable& faults, const Place& place)
    : faults_(faults),
      parameters_(place.parameters.begin(), place.parameters.end()),
      tp_rank_(place.tp_rank) {
  for (const Fault& fault : faults.faults()) {
    if (fault.kind == FaultKind::kGrowChannel) require_channel(fault, place.channels, place.tp_size);
    if (fault.kind == FaultKind::kSkipGradientReduction) require_reduced_over_tp(fault, place);
  }
}

void TrainingFaults::require_reduced_over_tp(const Fault& fault, const Place& place) const {
  const Parameter* const parameter = find(fault.parameter);
  if (parameter == nullptr && std::ranges::find(place.parameters_of_other_stages, fault.parameter) !=
                                  place.parameters_of_other_stages.end()) {
    return;
  }
  AMAXSCOPE_CHECK(parameter != nullptr, ErrorCode::kUsage,
                  "fault skip_gradient_reduction: there is no parameter \"{}\"", fault.parameter);
  AMAXSCOPE_CHECK(parameter->reduce_gradient_over_tp && place.tp_size > 1, ErrorCode::kUsage,
                  "fault skip_gradient_reduction: the gradient of {} is not reduced over tp; those of norms "
                  "and row biases are with tp > 1 and sequence parallelism",
                  fault.parameter);
}

Parameter* TrainingFaults::find(const std::string& name) const noexcept {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](const Parameter* parameter) { return parameter->name == name; });
  return found == parameters_.end() ? nullptr : *found;
}

void TrainingFaults::require_channel(const Fault& fault, std::int64_t channels, int tp_size) const {
  AMAXSCOPE_CHECK(channels > 0 && fault.layer.find("linear_fc1") != std::string::npos, ErrorCode::kUsage,
                  "fault grow_channel: {} makes no gate and up; linear_fc1 does under SwiGLU", fault.layer);
  AMAXSCOPE_CHECK(fault.channel < channels, ErrorCode::kUsage,
                  "fault grow_channel: channel {} of {}, which has {} (tp {})", fault.channel, fault.layer,
                  channels, tp_size);
}

void TrainingFaults::begin_step() {
  for (const Fault& fault : faults_.faults()) {
    const bool strikes = faults_.is_now(fault);
    if (fault.kind == FaultKind::kGrowChannel && strikes) grow_channel(fault);
    if (fault.kind == FaultKind::kSkipGradientReduction) {
      Parameter* const parameter = find(fault.parameter);
      if (parameter != nullptr) parameter->reduce_gradient_over_tp = !strikes;
    }
  }
}

void TrainingFaults::grow_channel(const Fault& fault) const {
  Parameter* const found = find(weight_of(fault));
  if (found == nullptr) return;
  Parameter& weight = *found;
  const std::int64_t first = 2 * fault.channel - tp_rank_ * weight.master.rows();
  if (first < 0 || first >= weight.master.rows()) return;  // another rank's channel
  const auto width = static_cast<std::size_t>(weight.master.cols());
  const auto grow = [&]<class T>(std::span<T> values) {
    const auto gate = static_cast<std::size_t>(first) * width;
    align_and_grow<T>(values.subspan(gate, width), values.subspan(gate + width, width));
  };
  weight.master.dtype() == DType::kF64 ? grow(weight.master.values<double>())
                                       : grow(weight.master.values<float>());
  weight.refresh_compute();
}

bool TrainingFaults::enlarge_gradients() const {
  const Fault* const fault = faults_.due(FaultKind::kAdamLag);
  if (fault == nullptr) return false;
  for (Parameter* const parameter : parameters_) scale(std::ldexp(1.0, fault->exponent), parameter->gradient);
  return true;
}

bool TrainingFaults::weights_are_bf16() const { return faults_.due(FaultKind::kNoMasterWeights) != nullptr; }

void TrainingFaults::end_step() const {
  if (!weights_are_bf16()) return;
  for (Parameter* const parameter : parameters_) {
    Tensor rounded(DType::kBF16, parameter->master.shape());
    convert(parameter->master.view(), rounded);
    convert(rounded.view(), parameter->master);
    parameter->refresh_compute();
  }
}

}  // namespace amaxscope::megatron

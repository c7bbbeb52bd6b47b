#include "runtime/quantizers/delayed_scaling.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000U;

/// Moves the step's amax in as the newest entry, drops the oldest, empties row 0; returns the maximum of the
/// newest and the L-1 entries before it. With one row that is the newest alone.
std::uint32_t roll(std::vector<std::uint32_t>& history, std::uint32_t newest) {
  std::rotate(history.begin(), history.begin() + 1, history.end());
  history.back() = newest;
  // Rotation brought the oldest entry to row 0: it counts once more and is dropped, as in the reference.
  const std::uint32_t largest = *std::max_element(history.begin(), history.end());
  history.front() = 0;
  return largest;
}

}  // namespace

DelayedScalingState::DelayedScalingState(DelayedScalingOptions options, Communicator* amax_group)
    : options_(options), amax_group_(amax_group) {
  AMAXSCOPE_CHECK(options.history_length >= 1, ErrorCode::kUsage,
                  "an amax history of {} rows; at least 1 is needed", options.history_length);
}

std::size_t DelayedScalingState::add(std::string name, DType format) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage, "delayed scaling of {} to {}; e4m3 and e5m2 are FP8",
                  name, to_string(format));
  Slot slot;
  slot.name = std::move(name);
  slot.format = format;
  slot.history.assign(static_cast<std::size_t>(options_.history_length), 0U);
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

void DelayedScalingState::restore(std::size_t index, Slot slot) {
  Slot& own = slots_.at(index);
  AMAXSCOPE_CHECK(
      slot.name == own.name && slot.format == own.format && slot.history.size() == own.history.size(),
      ErrorCode::kUsage, "slot {} ({}, history of {}) cannot be restored from {} ({}, history of {})",
      own.name, to_string(own.format), own.history.size(), slot.name, to_string(slot.format),
      slot.history.size());
  own = std::move(slot);
}

void DelayedScalingState::observe(std::size_t index, std::uint32_t amax_bits) {
  if (amax_bits > kInfinityBits) return;  // a NaN: its pattern would win an integer maximum
  std::uint32_t& running = slots_.at(index).history.front();
  running = std::max(running, amax_bits);
}

void DelayedScalingState::update() {
  std::vector<std::uint32_t> latest;
  latest.reserve(slots_.size());
  for (const Slot& slot : slots_) latest.push_back(slot.history.front());
  if (amax_group_ != nullptr && amax_group_->size() > 1 && !latest.empty()) {
    const Shape shape{static_cast<std::int64_t>(latest.size())};
    amax_group_->all_reduce(MutableTensorView(latest.data(), DType::kU32, shape), ReduceOp::kMax,
                            {.traffic = Traffic::kRecipe, .what = "delayed scaling amaxes"});
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (latest[i] == 0) continue;
    Slot& slot = slots_[i];
    const std::uint32_t largest = roll(slot.history, latest[i]);
    const std::uint32_t amax = options_.algorithm == AmaxAlgorithm::kMax ? largest : latest[i];
    if (amax >= kInfinityBits) {
      slot.clamp = ScaleClamp::kInfAmax;
      continue;
    }
    const ScaleFromAmax next = scale_with_margin(amax, slot.format, options_.margin);
    slot.scale = next.scale;
    slot.clamp = next.clamp;
    slot.has_history = true;
  }
}

Float8Quantizer::Float8Quantizer(DelayedScalingState& state, std::size_t slot) : state_(state), slot_(slot) {
  AMAXSCOPE_CHECK(slot < state.size(), ErrorCode::kUsage, "slot {} of a delayed scaling state with {}", slot,
                  state.size());
}

std::shared_ptr<QuantizedTensor> Float8Quantizer::quantize(const TensorView& x, Usage usage,
                                                           const TensorMoment& moment) {
  std::shared_ptr<Float8Tensor> codes = quantize_float8(x, format(), slot().scale, usage);
  observe(x, moment);
  return codes;
}

void Float8Quantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  requantize_float8(x, slot().scale, target);
  observe(x, moment);
}

void Float8Quantizer::observe(const TensorView& x, const TensorMoment& moment) {
  if (moment.phase == Phase::kEval || moment.phase == Phase::kRecompute) return;
  state_.observe(slot_, amax_bits(x));
}

}  // namespace amaxscope

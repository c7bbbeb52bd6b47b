#include "runtime/quantizers/delayed_scaling.hpp"

#include <algorithm>

#include "core/device_backend.hpp"
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
  if (!on_device_) return;
  on_device_->both.reset();
  if (on_device_->captured) make_scales(*on_device_);
}

void DelayedScalingState::observe(std::size_t index, std::uint32_t amax_bits) {
  if (amax_bits > kInfinityBits) return;  // a NaN: its pattern would win an integer maximum
  std::uint32_t& running = slots_.at(index).history.front();
  running = std::max(running, amax_bits);
}

DelayedScalingState::OnDevice& DelayedScalingState::on_device_of(std::size_t index, const TensorView& like) {
  static_cast<void>(slots_.at(index));
  const auto wanted = static_cast<std::int64_t>(slots_.size());
  if (on_device_) {
    AMAXSCOPE_CHECK(
        like.device() == on_device_->stream.device() && like.stream() == on_device_->stream.stream(),
        ErrorCode::kTensor,
        "delayed scaling of {}: its tensor is on {}, that of another slot on {} or on another "
        "stream; a state serves one stream",
        slots_[index].name, to_string(like.device()), to_string(on_device_->stream.device()));
  } else {
    // Not emplace(): clang takes a nested type with an initializer for not default-constructible in its
    // class.
    on_device_.emplace(OnDevice{});
    on_device_->stream = TensorView(nullptr, DType::kU32, Shape{0}, like.device(), like.stream());
  }
  OnDevice& there = *on_device_;
  const std::int64_t had = there.amaxes.defined() ? there.amaxes.numel() : 0;
  if (had < wanted) {
    AMAXSCOPE_CHECK(
        !there.captured && !backend_of("delayed scaling", like).capturing(like.stream()), ErrorCode::kUsage,
        "delayed scaling of {}: a captured step needs its amaxes where they are, and there are {} slots "
        "and were {}; run the step once as it is before it is captured, and add no slot after it",
        slots_[index].name, wanted, had);
    Tensor grown = Tensor::beside(like, DType::kU32, {wanted});
    backend_of("delayed scaling", like).zero(grown);
    if (had != 0) copy_tensor(grown.mutable_view().slice(0, had), there.amaxes.view());
    there.amaxes = std::move(grown);
    there.both.reset();
  }
  return there;
}

void DelayedScalingState::observe(std::size_t index, const TensorView& x) {
  if (x.device().kind == DeviceKind::kCpu) return observe(index, amax_bits(x));
  amax(x, on_device_of(index, x).amaxes.mutable_view().slice(static_cast<std::int64_t>(index), 1),
       /*accumulate=*/true);
}

Float8Scale DelayedScalingState::scale_beside(std::size_t index, const TensorView& like) {
  if (like.device().kind == DeviceKind::kCpu) return slots_.at(index).scale;
  OnDevice& there = on_device_of(index, like);
  if (backend_of("delayed scaling", like).capturing(like.stream())) {
    AMAXSCOPE_CHECK(
        there.both != nullptr, ErrorCode::kUsage,
        "delayed scaling of {}: its scale is not in device memory yet; run the step once as it is before "
        "it is captured",
        slots_[index].name);
    there.captured = true;
    auto own = std::make_shared<Tensor>(Tensor::beside(like, DType::kF32, {2}));
    copy_tensor(*own, there.current.view().slice(2 * static_cast<std::int64_t>(index), 2));
    return Float8Scale(DeviceNumbers{std::move(own)});
  }
  if (there.both == nullptr) make_scales(there);
  return Float8Scale(DeviceNumbers{there.both, 2 * static_cast<std::int64_t>(index)});
}

void DelayedScalingState::make_scales(OnDevice& there) const {
  std::vector<float> both;
  for (const Slot& slot : slots_) {
    both.push_back(slot.scale);
    both.push_back(scale_inverse(slot.scale));
  }
  const auto count = static_cast<std::int64_t>(both.size());
  const Tensor here = Tensor::of<float>(std::span<const float>(both), {count});
  there.both = std::make_shared<const Tensor>(to_device(here.view(), there.stream));
  if (!there.current.defined() || there.current.numel() != count) {
    there.current = Tensor::beside(there.stream, DType::kF32, {count});
  }
  copy_tensor(there.current, there.both->view());
}

void DelayedScalingState::fetch_amaxes() {
  if (!on_device_ || !on_device_->amaxes.defined()) return;
  const Tensor here = to_host(on_device_->amaxes.view());
  backend_of("delayed scaling", on_device_->stream).zero(on_device_->amaxes);
  const auto amaxes = here.values<std::uint32_t>();
  for (std::size_t i = 0; i < amaxes.size(); ++i) observe(i, amaxes[i]);
  on_device_->both.reset();
}

void DelayedScalingState::update() {
  fetch_amaxes();
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
  // A captured step reads the scales without being asked for them.
  if (on_device_ && on_device_->current.defined()) make_scales(*on_device_);
}

Float8Quantizer::Float8Quantizer(DelayedScalingState& state, std::size_t slot) : state_(state), slot_(slot) {
  AMAXSCOPE_CHECK(slot < state.size(), ErrorCode::kUsage, "slot {} of a delayed scaling state with {}", slot,
                  state.size());
}

std::shared_ptr<QuantizedTensor> Float8Quantizer::quantize(const TensorView& x, Usage usage,
                                                           const TensorMoment& moment) {
  std::shared_ptr<Float8Tensor> codes = quantize_float8(x, format(), state_.scale_beside(slot_, x), usage);
  observe(x, moment);
  return codes;
}

void Float8Quantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  requantize_float8(x, state_.scale_beside(slot_, x), target);
  observe(x, moment);
}

void Float8Quantizer::observe(const TensorView& x, const TensorMoment& moment) {
  if (moment.phase == Phase::kEval || moment.phase == Phase::kRecompute) return;
  state_.observe(slot_, x);
}

}  // namespace amaxscope

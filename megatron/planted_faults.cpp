#include "megatron/planted_faults.hpp"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::megatron {

namespace {
constexpr CollectiveTag kTag = {Traffic::kRecipe, "amax under a planted fault"};
}

ForwardingGroup::ForwardingGroup(const Communicator& like)
    : Communicator(like.world_ranks(), std::make_shared<TrafficCounters>()) {}

void ForwardingGroup::abort(int status, std::string_view reason) noexcept {
  inner().abort(status, reason);
  std::abort();  // not reached; a virtual call does not tell the compiler
}

void ForwardingGroup::do_all_reduce(const MutableTensorView& io, ReduceOp op) {
  inner().all_reduce(io, op, kTag);
}
std::unique_ptr<PendingCollective> ForwardingGroup::do_start_all_reduce(std::shared_ptr<Tensor> io,
                                                                        ReduceOp op) {
  return inner().start_all_reduce(std::move(io), op, kTag);
}
void ForwardingGroup::do_all_gather(const TensorView& in, const MutableTensorView& out) {
  inner().all_gather(in, out, kTag);
}
void ForwardingGroup::do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) {
  inner().reduce_scatter(in, out, op, kTag);
}
void ForwardingGroup::do_broadcast(const MutableTensorView& io, int root) {
  inner().broadcast(io, root, kTag);
}
void ForwardingGroup::do_barrier() { inner().barrier(kTag); }
void ForwardingGroup::do_send(const TensorView& in, int to) { inner().send(in, to, kTag); }
void ForwardingGroup::do_receive(const MutableTensorView& out, int from) { inner().receive(out, from, kTag); }
std::unique_ptr<Communicator> ForwardingGroup::do_split(int color, int key) {
  return inner().split(color, key, kTag);
}

AmaxGroupWithGaps::AmaxGroupWithGaps(Communicator& inner, const FaultTable& faults, KeepsOwn keeps_own)
    : ForwardingGroup(inner), inner_(inner), faults_(faults), keeps_own_(std::move(keeps_own)) {}

void AmaxGroupWithGaps::do_all_reduce(const MutableTensorView& io, ReduceOp op) {
  const std::span<std::uint32_t> amaxes = io.values<std::uint32_t>();
  const std::vector<std::uint32_t> own(amaxes.begin(), amaxes.end());
  inner_.all_reduce(io, op, kTag);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const Fault* const fault = keeps_own_(i);
    if (fault == nullptr || amaxes[i] == own[i]) continue;
    faults_.took_effect(*fault);
    amaxes[i] = own[i];
  }
}

SwitchedGroup::SwitchedGroup(Communicator& sound, Communicator& wrong, const FaultTable& faults,
                             FaultKind kind)
    : ForwardingGroup(sound), sound_(sound), wrong_(wrong), faults_(faults), kind_(kind) {}

std::shared_ptr<QuantizedTensor> ScaleOffQuantizer::quantize(const TensorView& x, Usage usage,
                                                             const TensorMoment& moment) {
  std::shared_ptr<QuantizedTensor> result = inner().quantize(x, usage, moment);
  strike(x, *result);
  return result;
}

void ScaleOffQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  inner().update(x, target, moment);
  strike(x, target);
}

void ScaleOffQuantizer::strike(const TensorView& x, QuantizedTensor& target) const {
  const Fault* const fault = due();
  if (fault == nullptr) return;
  auto* const sound = dynamic_cast<Float8Tensor*>(&target);
  AMAXSCOPE_CHECK(sound != nullptr, ErrorCode::kUsage, "fault scale_off: {} of {} has no scale per tensor",
                  to_string(tensor()), layer());
  requantize_float8(x, std::ldexp(sound->scale(), fault->exponent), *sound);
}

std::shared_ptr<QuantizedTensor> Bf16RecomputeQuantizer::quantize(const TensorView& x, Usage usage,
                                                                  const TensorMoment& moment) {
  if (moment.phase != Phase::kRecompute || due() == nullptr) return inner().quantize(x, usage, moment);
  Tensor rounded(DType::kBF16, x.shape());
  convert(x, rounded);
  return std::make_shared<HighPrecisionTensor>(std::move(rounded));
}

}  // namespace amaxscope::megatron

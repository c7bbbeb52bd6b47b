#include "megatron/planted_faults.hpp"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/error.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::megatron {

namespace {
constexpr CollectiveTag kTag = {Traffic::kRecipe, "amax under a planted fault"};
}

AmaxGroupWithGaps::AmaxGroupWithGaps(Communicator& inner, KeepsOwn keeps_own)
    : Communicator(inner.world_ranks(), std::make_shared<TrafficCounters>()),
      inner_(inner),
      keeps_own_(std::move(keeps_own)) {}

void AmaxGroupWithGaps::abort(int status, std::string_view reason) noexcept {
  inner_.abort(status, reason);
  std::abort();  // not reached; a virtual call does not tell the compiler
}

void AmaxGroupWithGaps::do_all_reduce(const MutableTensorView& io, ReduceOp op) {
  const std::span<std::uint32_t> amaxes = io.values<std::uint32_t>();
  const std::vector<std::uint32_t> own(amaxes.begin(), amaxes.end());
  inner_.all_reduce(io, op, kTag);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (keeps_own_(i)) amaxes[i] = own[i];
  }
}

std::unique_ptr<PendingCollective> AmaxGroupWithGaps::do_start_all_reduce(std::shared_ptr<Tensor> io,
                                                                          ReduceOp op) {
  return inner_.start_all_reduce(std::move(io), op, kTag);
}
void AmaxGroupWithGaps::do_all_gather(const TensorView& in, const MutableTensorView& out) {
  inner_.all_gather(in, out, kTag);
}
void AmaxGroupWithGaps::do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) {
  inner_.reduce_scatter(in, out, op, kTag);
}
void AmaxGroupWithGaps::do_broadcast(const MutableTensorView& io, int root) {
  inner_.broadcast(io, root, kTag);
}
void AmaxGroupWithGaps::do_barrier() { inner_.barrier(kTag); }
std::unique_ptr<Communicator> AmaxGroupWithGaps::do_split(int color, int key) {
  return inner_.split(color, key, kTag);
}

ScaleOffQuantizer::ScaleOffQuantizer(std::shared_ptr<Quantizer> inner, const FaultTable& faults,
                                     std::string layer, TensorKind tensor)
    : inner_(std::move(inner)), faults_(faults), layer_(std::move(layer)), tensor_(tensor) {}

std::shared_ptr<QuantizedTensor> ScaleOffQuantizer::quantize(const TensorView& x, Usage usage,
                                                             const TensorMoment& moment) {
  std::shared_ptr<QuantizedTensor> result = inner_->quantize(x, usage, moment);
  strike(x, *result);
  return result;
}

void ScaleOffQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) {
  inner_->update(x, target, moment);
  strike(x, target);
}

void ScaleOffQuantizer::strike(const TensorView& x, QuantizedTensor& target) const {
  const Fault* const fault = faults_.due(FaultKind::kScaleOff, layer_, tensor_);
  if (fault == nullptr) return;
  auto* const sound = dynamic_cast<Float8Tensor*>(&target);
  AMAXSCOPE_CHECK(sound != nullptr, ErrorCode::kUsage, "fault scale_off: {} of {} has no scale per tensor",
                  to_string(tensor_), layer_);
  requantize_float8(x, std::ldexp(sound->scale(), fault->exponent), *sound);
}

}  // namespace amaxscope::megatron

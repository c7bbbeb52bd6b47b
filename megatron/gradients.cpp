#include "megatron/gradients.hpp"

#include <cmath>

#include "megatron/ops/elementwise.hpp"
#include "megatron/pipeline.hpp"

namespace amaxscope::megatron {

namespace {

template <class T>
double square_sum(std::span<const T> values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

double square_sum(const Tensor& gradient) {
  return gradient.dtype() == DType::kF64 ? square_sum(gradient.values<double>())
                                         : square_sum(gradient.values<float>());
}

bool spans_ranks(const Communicator* group) { return group != nullptr && group->size() > 1; }

}  // namespace

void reduce_gradients(std::span<Parameter* const> parameters, Communicator* tp, Communicator* dp) {
  for (Parameter* const parameter : parameters) {
    if (parameter->copy_of_first_stage) continue;
    if (parameter->reduce_gradient_over_tp && spans_ranks(tp)) {
      tp->all_reduce(parameter->gradient, ReduceOp::kSum,
                     {Traffic::kTrainer, "replicated gradient", parameter->name, "gradient"});
    }
    if (spans_ranks(dp)) {
      dp->all_reduce(parameter->gradient, ReduceOp::kSum,
                     {Traffic::kTrainer, "data-parallel gradient", parameter->name, "gradient"});
      scale(1.0 / dp->size(), parameter->gradient);
    }
  }
}

void collect_tied_gradient(Parameter* tied, Communicator* pp) {
  if (tied == nullptr || !spans_ranks(pp)) return;
  const CollectiveTag tag{Traffic::kTrainer, "tied gradient", tied->name, "gradient"};
  if (tied->copy_of_first_stage) return pp->send(tied->gradient.view(), 0, tag);
  Tensor other(tied->gradient.dtype(), tied->gradient.shape());
  pp->receive(other, pp->size() - 1, tag);
  add(other, tied->gradient);
}

void return_tied_gradient(Parameter* tied, Communicator* pp) {
  if (tied == nullptr || !spans_ranks(pp)) return;
  const CollectiveTag tag{Traffic::kTrainer, "tied gradient", tied->name, "gradient"};
  if (tied->copy_of_first_stage) return pp->receive(tied->gradient, 0, tag);
  pp->send(tied->gradient.view(), pp->size() - 1, tag);
}

double gradient_norm(std::span<Parameter* const> parameters, Communicator* tp, Communicator* pp) {
  const CollectiveTag tag{Traffic::kTrainer, "gradient norm"};
  Tensor sums = Tensor::of<double>({0.0, 0.0}, {2});
  double& replicated = sums.values<double>()[0];
  double& split = sums.values<double>()[1];
  const PipelineStage stage = PipelineStage::in(pp);
  if (!stage.is_first()) pp->receive(sums, stage.index - 1, tag);
  for (const Parameter* const parameter : parameters) {
    if (parameter->copy_of_first_stage) continue;
    (parameter->layout == Layout::kReplicated ? replicated : split) += square_sum(parameter->gradient);
  }
  if (!stage.is_last()) {
    pp->send(sums.view(), stage.index + 1, tag);
  } else if (spans_ranks(tp)) {
    Tensor over_tp = Tensor::of<double>({split}, {1});
    tp->all_reduce(over_tp, ReduceOp::kSum, tag);
    split = over_tp.values<double>()[0];
  }
  return Pipeline(pp).from_last(std::sqrt(replicated + split), "gradient norm");
}

void clip_gradients(std::span<Parameter* const> parameters, double norm, double max_norm) {
  if (!std::isfinite(norm) || norm <= max_norm) return;
  for (Parameter* const parameter : parameters) scale(max_norm / norm, parameter->gradient);
}

std::uint64_t weights_digest(std::span<Parameter* const> parameters) {
  constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325U;
  constexpr std::uint64_t kPrime = 0x100000001b3U;
  std::uint64_t digest = kOffsetBasis;
  for (const Parameter* const parameter : parameters) {
    const TensorView view = parameter->master.view();
    const std::span bytes(static_cast<const std::uint8_t*>(view.data()), view.bytes());
    for (const std::uint8_t byte : bytes) digest = (digest ^ byte) * kPrime;
  }
  return digest;
}

}  // namespace amaxscope::megatron

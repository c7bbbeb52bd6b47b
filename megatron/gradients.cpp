#include "megatron/gradients.hpp"

#include <cmath>

#include "megatron/ops/elementwise.hpp"

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

double gradient_norm(std::span<Parameter* const> parameters, Communicator* tp) {
  double replicated = 0;
  Tensor split = Tensor::of<double>({0.0}, {1});
  double& split_sum = split.values<double>()[0];
  for (const Parameter* const parameter : parameters) {
    (parameter->layout == Layout::kReplicated ? replicated : split_sum) += square_sum(parameter->gradient);
  }
  if (spans_ranks(tp)) tp->all_reduce(split, ReduceOp::kSum, {Traffic::kTrainer, "gradient norm"});
  return std::sqrt(replicated + split_sum);
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

#include "megatron/layers/product.hpp"

#include <bit>
#include <optional>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/gemm.hpp"
#include "megatron/faults.hpp"
#include "megatron/ops/elementwise.hpp"

namespace amaxscope::megatron {

namespace {

bool on_host(const Tensor& tensor) { return tensor.device().kind == DeviceKind::kCpu; }

Tensor reduce(const Product& product, Tensor summand) {
  if (product.reduction == Reduction::kNone) return summand;
  // Sums of 16 bits over ranks are made in fp32 and rounded once, which a device does not do.
  if (!on_host(summand) && bits_per_element(summand.dtype()) == 16) summand = to_host(summand.view());
  Communicator& tp = *product.context.tp;
  const CollectiveTag tag = {Traffic::kTrainer, "reduce result", product.layer, to_string(product.result)};
  if (product.reduction == Reduction::kAllReduce) {
    tp.all_reduce(summand, ReduceOp::kSum, tag);
    return summand;
  }
  Tensor slice = Tensor::beside(summand, summand.dtype(), {summand.rows() / tp.size(), summand.cols()});
  tp.reduce_scatter(summand.view(), slice, ReduceOp::kSum, tag);
  return slice;
}

/// Whether every rank of tp decodes with this factor: MAX of its bits and of their complement. Ranks' factors
/// differ wherever a recipe or a feature gives each shard its own scale.
bool factor_is_common(const Product& product, double factor) {
  const auto bits = std::bit_cast<std::uint64_t>(factor);
  Tensor bounds = Tensor::of<std::uint64_t>({bits, ~bits}, {2});
  product.context.tp->all_reduce(
      bounds, ReduceOp::kMax,
      {Traffic::kTrainer, "compare factors", product.layer, to_string(product.result)});
  const auto seen = bounds.values<std::uint64_t>();
  return seen[0] == ~seen[1];
}

Tensor rounded(const Tensor& sums, double factor, DType dtype) {
  Tensor result(dtype, sums.shape());
  scale_and_round(sums, factor, result);
  return result;
}

Tensor multiply_exact(const Product& product, const GemmInputs& inputs, const TensorMoment& moment) {
  const GemmOperand& a = inputs.a;
  const GemmOperand& b = inputs.b;
  Tensor sums(DType::kF64, {a.rows(), b.rows()});
  gemm_exact(a, b, sums);
  if (product.faults != nullptr) plant_nan(*product.faults, product.layer, product.result, sums);
  double factor = static_cast<double>(a.scale_inv) * static_cast<double>(b.scale_inv);
  if (product.debug != nullptr || product.reduction == Reduction::kNone) {
    Tensor own = rounded(sums, factor, product.dtype);
    if (product.debug != nullptr) product.debug->process_gemm_output(own, moment, &inputs);
    const bool modified =
        product.debug != nullptr && product.debug->plan(Direction::kRowwise) == Plan::kModifyTensor;
    if (modified || product.reduction == Reduction::kNone) return reduce(product, std::move(own));
  }
  if (!factor_is_common(product, factor)) {
    scale(factor, sums);
    factor = 1.0;
  }
  return rounded(reduce(product, std::move(sums)), factor, product.dtype);
}

}  // namespace

Tensor multiply(const Product& product, const GemmInputs& inputs, const TensorMoment& moment) {
  if (product.context.arithmetic == GemmArithmetic::kExact) return multiply_exact(product, inputs, moment);
  Tensor result = Tensor::beside(inputs.a.data, product.dtype, {inputs.a.rows(), inputs.b.rows()});
  gemm(inputs.a, inputs.b, result);
  if (product.faults != nullptr) plant_nan(*product.faults, product.layer, product.result, result);
  if (product.debug != nullptr) product.debug->process_gemm_output(result, moment, &inputs);
  result = reduce(product, std::move(result));
  return on_host(result) ? std::move(result) : to_host(result.view());
}

}  // namespace amaxscope::megatron

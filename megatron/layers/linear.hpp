// Tensor-parallel linear layers, y = x W^T + bias, forward and backward by hand: the order in which operands
// are quantized, gathered, multiplied and reduced is Megatron's, with a debug quantizer on each of the six
// tensors. Column parallel splits the outputs: W [N/t, K], x [M, K] -> y [M, N/t]. Row parallel splits the
// inputs: W [N, K/t], x [M, K/t] -> y [M, N], summed over tp. With sequence parallelism x of a
// column-parallel layer and y of a row-parallel one hold this rank's slice of the rows. Used by one thread.
// forward and backward are collective over tp.
//
// With a device in the context operands are copied there, and quantized, gathered, multiplied, inspected and
// reduced there; x, dy, results, bias and gradients are on the host in any case. Each result is waited for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/context.hpp"
#include "megatron/layers/device_copies.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "megatron/layers/product.hpp"
#include "megatron/layers/weight_operand.hpp"
#include "megatron/parameter.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron {

struct LinearOptions {
  std::string name;                ///< full name, as in the debug YAML
  std::optional<int> number;       ///< 1-based number of the transformer layer
  std::optional<int> expert = {};  ///< global index, in a group of experts
  std::int64_t inputs = 0;         ///< K of the whole layer
  std::int64_t outputs = 0;        ///< N of the whole layer
  bool bias = true;
  double initial_std = 0.02;  ///< of the weights; the bias starts at 0
};

class Linear {
 public:
  /// What backward needs of a forward. The caller keeps it, so several micro-batches may be in flight.
  struct Saved {
    std::shared_ptr<QuantizedTensor> activation;  ///< columnwise operand, gathered under sequence parallelism
    /// x, when the operand borrows its memory, or a debug feature compares wgrad with what x would give.
    Tensor input;
  };

  /// tied_weight: a parameter of this layer's shape that is owned elsewhere, or null. Throws Error(kUsage)
  /// when the split dimension is not divisible by tp, for f64 with a recipe or with exact GEMMs, for f64,
  /// exact GEMMs or planted faults on a device, and as DebugSession::layer does.
  Linear(const LayerContext& context, ParallelMode mode, LinearOptions options,
         Parameter* tied_weight = nullptr);
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  /// saved null: no backward follows this call (evaluation, or a forward that is run again in
  /// Phase::kRecompute). The weight is quantized anew when moment.microbatch is 0, except in a recompute.
  Tensor forward(Tensor x, const TensorMoment& moment, Saved* saved);
  /// Adds to the gradients of the parameters and returns dx; empties saved.
  Tensor backward(const TensorView& dy, const TensorMoment& moment, Saved& saved);

  [[nodiscard]] const std::string& name() const noexcept { return description_.name; }
  [[nodiscard]] const LayerDescription& description() const noexcept { return description_; }
  [[nodiscard]] Parameter& weight() noexcept { return *weight_; }
  /// Appends the parameters this layer owns.
  void collect(std::vector<Parameter*>& parameters);

 private:
  void initialize_parameters(const LinearOptions& options, std::int64_t outputs, std::int64_t inputs);
  [[nodiscard]] std::unique_ptr<WeightFaults> weight_faults() const;
  [[nodiscard]] bool recomputes_in_bf16(const TensorMoment& moment) const;
  [[nodiscard]] DebugQuantizer* debug_quantizer(TensorKind tensor) const;
  std::shared_ptr<QuantizedTensor> quantize_operand(TensorKind tensor, const TensorView& values, Usage usage,
                                                    const TensorMoment& moment);
  /// dy itself, or `copy` of it with the NaN that is due.
  TensorView with_planted_nan(const TensorView& dy, Tensor& copy) const;
  /// What the weight's operand is made of, where the layer computes; on a device a copy that is made anew
  /// when the weight has changed, in the same place.
  [[nodiscard]] TensorView weight_values();
  void prepare_weight(const TensorMoment& moment);
  Tensor multiply_to(TensorKind result, const GemmInputs& inputs, const TensorMoment& moment);

  LayerContext context_;
  LayerDescription description_;
  const FaultTable* faults_;  ///< null unless one is planted in this layer
  std::unique_ptr<Parameter> own_weight_;
  Parameter* weight_;
  std::unique_ptr<Parameter> bias_;
  LayerQuantizers quantizers_;
  LayerHandle handle_;
  std::unique_ptr<WeightOperand> weight_operand_;
  DeviceCopy weight_there_;  ///< on a device
};

class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(const LayerContext& context, LinearOptions options, Parameter* tied_weight = nullptr)
      : Linear(context, ParallelMode::kColumn, std::move(options), tied_weight) {}
};

class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(const LayerContext& context, LinearOptions options)
      : Linear(context, ParallelMode::kRow, std::move(options)) {}
};

}  // namespace amaxscope::megatron

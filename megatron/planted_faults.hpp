// The parts that misbehave on purpose: built only where a fault is planted, in place of the sound part.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/communicator.hpp"
#include "megatron/faults.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope::megatron {

/// A group that passes every collective on to another, which may change between two of them.
class ForwardingGroup : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return inner().rank(); }
  [[nodiscard]] int size() const noexcept override { return inner().size(); }
  [[noreturn]] void abort(int status, std::string_view reason) noexcept override;

 protected:
  explicit ForwardingGroup(const Communicator& like);
  [[nodiscard]] virtual Communicator& inner() const noexcept = 0;

  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override;
  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override;
  void do_all_gather(const TensorView& in, const MutableTensorView& out) override;
  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override;
  void do_broadcast(const MutableTensorView& io, int root) override;
  void do_barrier() override;
  void do_send(const TensorView& in, int to) override;
  void do_receive(const MutableTensorView& out, int from) override;
  std::unique_ptr<Communicator> do_split(int color, int key) override;
};

/// A group whose amax reductions leave some positions of the buffer as this rank's own. The rank still takes
/// part in the collective, so that the others neither wait nor see another amax. `inner` and the faults must
/// outlive it; a fault is told when what was kept is not the group's.
class AmaxGroupWithGaps final : public ForwardingGroup {
 public:
  /// The fault that is due at a position, or null.
  using KeepsOwn = std::function<const Fault*(std::size_t position)>;
  AmaxGroupWithGaps(Communicator& inner, const FaultTable& faults, KeepsOwn keeps_own);

 protected:
  [[nodiscard]] Communicator& inner() const noexcept override { return inner_; }
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override;

 private:
  Communicator& inner_;
  const FaultTable& faults_;
  KeepsOwn keeps_own_;
};

/// One group, or another while a fault of this kind is due. All must outlive it.
class SwitchedGroup final : public ForwardingGroup {
 public:
  SwitchedGroup(Communicator& sound, Communicator& wrong, const FaultTable& faults, FaultKind kind);

 protected:
  [[nodiscard]] Communicator& inner() const noexcept override {
    return faults_.due(kind_) != nullptr ? wrong_ : sound_;
  }

 private:
  Communicator& sound_;
  Communicator& wrong_;
  const FaultTable& faults_;
  FaultKind kind_;
};

/// A recipe's quantizer for one operand that does something else while a fault is due.
class FaultyQuantizer : public Quantizer {
 public:
  [[nodiscard]] const Quantizer& unwrapped() const noexcept override { return inner_->unwrapped(); }
  [[nodiscard]] RecipeKind recipe() const noexcept override { return inner_->recipe(); }
  [[nodiscard]] DType format() const noexcept override { return inner_->format(); }

 protected:
  /// The table must outlive the quantizer.
  FaultyQuantizer(FaultKind kind, std::shared_ptr<Quantizer> inner, const FaultTable& faults,
                  std::string layer, TensorKind tensor)
      : kind_(kind), inner_(std::move(inner)), faults_(faults), layer_(std::move(layer)), tensor_(tensor) {}
  [[nodiscard]] const Fault* due() const noexcept { return faults_.due(kind_, layer_, tensor_); }
  [[nodiscard]] Quantizer& inner() const noexcept { return *inner_; }
  [[nodiscard]] const std::string& layer() const noexcept { return layer_; }
  [[nodiscard]] TensorKind tensor() const noexcept { return tensor_; }

 private:
  FaultKind kind_;
  std::shared_ptr<Quantizer> inner_;
  const FaultTable& faults_;
  std::string layer_;
  TensorKind tensor_;
};

/// Quantizes as `inner` does, but under 2^k times its scale while the fault is due; codes and decoding factor
/// agree.
class ScaleOffQuantizer final : public FaultyQuantizer {
 public:
  ScaleOffQuantizer(std::shared_ptr<Quantizer> inner, const FaultTable& faults, std::string layer,
                    TensorKind tensor)
      : FaultyQuantizer(FaultKind::kScaleOff, std::move(inner), faults, std::move(layer), tensor) {}
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;

 private:
  void strike(const TensorView& x, QuantizedTensor& target) const;
};

/// Leaves the tensor in BF16 in a recompute while the fault is due.
class Bf16RecomputeQuantizer final : public FaultyQuantizer {
 public:
  Bf16RecomputeQuantizer(std::shared_ptr<Quantizer> inner, const FaultTable& faults, std::string layer,
                         TensorKind tensor)
      : FaultyQuantizer(FaultKind::kRecomputeInBf16, std::move(inner), faults, std::move(layer), tensor) {}
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override {
    inner().update(x, target, moment);
  }
};

}  // namespace amaxscope::megatron

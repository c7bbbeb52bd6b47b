// The parts that misbehave on purpose: built only where a fault is planted, in place of the sound part.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collectives/communicator.hpp"
#include "megatron/faults.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope::megatron {

/// A group whose amax reductions leave some positions of the buffer as this rank's own. The rank still takes
/// part in the collective, so that the others neither wait nor see another amax. `inner` must outlive it.
class AmaxGroupWithGaps final : public Communicator {
 public:
  using KeepsOwn = std::function<bool(std::size_t position)>;
  AmaxGroupWithGaps(Communicator& inner, KeepsOwn keeps_own);

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  [[noreturn]] void abort(int status, std::string_view reason) noexcept override;

 protected:
  void do_all_reduce(const MutableTensorView& io, ReduceOp op) override;
  std::unique_ptr<PendingCollective> do_start_all_reduce(std::shared_ptr<Tensor> io, ReduceOp op) override;
  void do_all_gather(const TensorView& in, const MutableTensorView& out) override;
  void do_reduce_scatter(const TensorView& in, const MutableTensorView& out, ReduceOp op) override;
  void do_broadcast(const MutableTensorView& io, int root) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int color, int key) override;

 private:
  Communicator& inner_;
  KeepsOwn keeps_own_;
};

/// Quantizes as `inner` does, but under 2^k times its scale while the fault is due; codes and decoding factor
/// agree.
class ScaleOffQuantizer final : public Quantizer {
 public:
  /// The table must outlive the quantizer.
  ScaleOffQuantizer(std::shared_ptr<Quantizer> inner, const FaultTable& faults, std::string layer,
                    TensorKind tensor);
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  [[nodiscard]] RecipeKind recipe() const noexcept override { return inner_->recipe(); }
  [[nodiscard]] DType format() const noexcept override { return inner_->format(); }

 private:
  void strike(const TensorView& x, QuantizedTensor& target) const;

  std::shared_ptr<Quantizer> inner_;
  const FaultTable& faults_;
  std::string layer_;
  TensorKind tensor_;
};

}  // namespace amaxscope::megatron

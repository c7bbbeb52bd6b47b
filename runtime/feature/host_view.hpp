// What a feature inspects, copied from a device to the host: the one place where statistics that only the
// host computes get their tensors. Made by InspectContext::on_host(). Used by one thread; making it blocks.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"

namespace amaxscope {

/// Whether all of it can be read by the host.
bool is_on_host(const InspectContext& context);

class HostView {
 public:
  explicit HostView(const InspectContext& there);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  [[nodiscard]] const InspectContext& context() const noexcept { return context_; }

 private:
  TensorView here(const TensorView& view);
  std::optional<TensorView> here(const TensorView* view);
  GemmOperand here(const GemmOperand& operand);
  std::optional<GemmInputs> here(const GemmInputs* inputs);

  std::deque<Tensor> tensors_;
  std::deque<BlockScaledCodes> blocks_;
  TensorView x_;
  std::shared_ptr<QuantizedTensor> rowwise_;
  std::shared_ptr<QuantizedTensor> columnwise_;
  std::optional<TensorView> weight_;
  std::optional<TensorView> normalized_gradient_;
  std::optional<GemmInputs> gemm_;
  InspectContext context_;  ///< of the above
};

/// A copy of an operand on the host. Throws Error(kTensor) for a kind that only its maker knows.
std::shared_ptr<QuantizedTensor> to_host(const QuantizedTensor& operand);

}  // namespace amaxscope

// The operands a DebugQuantizer made of one tensor: one object for both directions, or two of different kinds.
#pragma once

#include <memory>
#include <vector>

#include "runtime/quantizers/quantized_tensor.hpp"

namespace amaxscope {

class DebugQuantizedTensor final : public QuantizedTensor {
 public:
  /// Either may be null when the direction was not wanted; both may be the same object.
  DebugQuantizedTensor(Shape shape, std::shared_ptr<QuantizedTensor> rowwise,
                       std::shared_ptr<QuantizedTensor> columnwise);

  [[nodiscard]] const Shape& shape() const noexcept override { return shape_; }
  [[nodiscard]] DType format(Direction direction) const override;
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] GemmOperand operand(Direction direction) const override;
  [[nodiscard]] Tensor dequantize(DType dtype, Direction direction) const override;
  /// Goes to each member with its own direction; a shared member gets one combined call. A dropped direction
  /// frees its member.
  void update_usage(Usage wanted) override;

  /// The member of a direction (transpose false: rowwise); null when it is not there.
  [[nodiscard]] const std::shared_ptr<QuantizedTensor>& get_tensor(bool transpose) const noexcept;
  void set_tensor(bool transpose, std::shared_ptr<QuantizedTensor> tensor);
  [[nodiscard]] bool shared() const noexcept { return rowwise_ != nullptr && rowwise_ == columnwise_; }

  /// Hands the members out (one when shared) and keeps none, so that a training loop can hold them between
  /// forward and backward in its own way; restore_from_saved takes them back in the same order.
  [[nodiscard]] std::vector<std::shared_ptr<QuantizedTensor>> prepare_for_saving();
  void restore_from_saved(std::vector<std::shared_ptr<QuantizedTensor>> members);

 private:
  Shape shape_;
  std::shared_ptr<QuantizedTensor> rowwise_;
  std::shared_ptr<QuantizedTensor> columnwise_;
  bool saved_rowwise_ = false;
  bool saved_columnwise_ = false;
};

}  // namespace amaxscope

// The operands a DebugQuantizer made of one tensor: one object for both directions, or two of different
// kinds.
#pragma once

#include <memory>
#include <vector>

#include "runtime/quantizers/quantized_tensor.hpp"

namespace amaxscope {

class Quantizer;

class DebugQuantizedTensor final : public QuantizedTensor {
 public:
  /// Either may be null when the direction was not wanted; both may be the same object, which need not hold
  /// both directions now.
  DebugQuantizedTensor(Shape shape, std::shared_ptr<QuantizedTensor> rowwise,
                       std::shared_ptr<QuantizedTensor> columnwise);

  [[nodiscard]] const Shape& shape() const noexcept override { return shape_; }
  [[nodiscard]] DType format(Direction direction) const override;
  [[nodiscard]] std::string format_name(Direction direction) const override;
  /// Of the directions that are there: one name, or both where they differ, "rowwise E4M3, columnwise high
  /// precision".
  [[nodiscard]] std::string format_name() const;
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] GemmOperand operand(Direction direction) const override;
  [[nodiscard]] Tensor dequantize(DType dtype, Direction direction) const override;
  /// Goes to each member with its own direction; a shared member gets one combined call. A dropped direction
  /// frees its member; of a shared one it frees that direction's memory, and as long as the other direction
  /// is kept it can be had again where the member's format allows. Throws Error(kUsage) naming a direction
  /// that cannot be had, before anything has changed.
  void update_usage(Usage wanted) override;

  /// The member of a direction (transpose false: rowwise); null when it is not there.
  [[nodiscard]] const std::shared_ptr<QuantizedTensor>& get_tensor(bool transpose) const noexcept;
  /// Replaces the member of a direction; null drops it.
  void set_tensor(bool transpose, std::shared_ptr<QuantizedTensor> tensor);
  /// Whether both directions stand on one object.
  [[nodiscard]] bool shared() const noexcept { return rowwise_ != nullptr && rowwise_ == columnwise_; }

  /// Hands the members out (one when shared) and keeps none, so that a training loop can hold them between
  /// forward and backward in its own way; restore_from_saved takes them back in the same order.
  [[nodiscard]] std::vector<std::shared_ptr<QuantizedTensor>> prepare_for_saving();
  /// Throws Error(kUsage) when it is given another number of members than were handed out.
  void restore_from_saved(std::vector<std::shared_ptr<QuantizedTensor>> members);

 private:
  friend class DebugQuantizer;
  [[nodiscard]] const std::shared_ptr<QuantizedTensor>& require(Direction direction) const;
  [[nodiscard]] bool present(Direction direction) const noexcept;

  Shape shape_;
  std::shared_ptr<QuantizedTensor> rowwise_;
  std::shared_ptr<QuantizedTensor> columnwise_;
  Usage wanted_;  ///< directions that were asked for; a shared member may hold more
  /// The recipe's quantizer and the directions whose member is its work, so that its update() can refresh
  /// them.
  std::weak_ptr<Quantizer> standard_maker_;
  Usage standard_{false, false};
  enum class Saved { kNothing, kShared, kRowwise, kColumnwise, kBoth } saved_ = Saved::kNothing;
};

/// The operand itself when a debug quantizer made it, else one that stands on it in both directions: for a
/// tensor that is older than the debug iteration in which it is inspected again.
std::shared_ptr<QuantizedTensor> as_debug_operand(const std::shared_ptr<QuantizedTensor>& operand);

}  // namespace amaxscope

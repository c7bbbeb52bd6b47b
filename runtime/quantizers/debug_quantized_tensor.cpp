#include "runtime/quantizers/debug_quantized_tensor.hpp"

#include "core/error.hpp"

namespace amaxscope {

namespace {

const std::shared_ptr<QuantizedTensor> kNoTensor;

}  // namespace

DebugQuantizedTensor::DebugQuantizedTensor(Shape shape, std::shared_ptr<QuantizedTensor> rowwise,
                                           std::shared_ptr<QuantizedTensor> columnwise)
    : shape_(shape),
      rowwise_(std::move(rowwise)),
      columnwise_(std::move(columnwise)),
      wanted_{rowwise_ != nullptr && rowwise_->usage().rowwise,
              columnwise_ != nullptr && columnwise_->usage().columnwise} {}

bool DebugQuantizedTensor::present(Direction direction) const noexcept {
  const auto& member = direction == Direction::kRowwise ? rowwise_ : columnwise_;
  return member != nullptr && wanted_.has(direction) && member->usage().has(direction);
}

const std::shared_ptr<QuantizedTensor>& DebugQuantizedTensor::require(Direction direction) const {
  AMAXSCOPE_CHECK(present(direction), ErrorCode::kUsage,
                  "the {} operand of a tensor of shape {} is not there{}", to_string(direction),
                  to_string(shape_), saved_ == Saved::kNothing ? "" : "; it is saved and was not restored");
  return direction == Direction::kRowwise ? rowwise_ : columnwise_;
}

DType DebugQuantizedTensor::format(Direction direction) const {
  return require(direction)->format(direction);
}

std::string DebugQuantizedTensor::format_name(Direction direction) const {
  return require(direction)->format_name(direction);
}

std::string DebugQuantizedTensor::format_name() const {
  const Usage present = usage();
  const std::string rowwise = present.rowwise ? format_name(Direction::kRowwise) : std::string();
  const std::string columnwise = present.columnwise ? format_name(Direction::kColumnwise) : rowwise;
  if (rowwise.empty() || rowwise == columnwise) return columnwise;
  return fmt::format("rowwise {}, columnwise {}", rowwise, columnwise);
}

Usage DebugQuantizedTensor::usage() const noexcept {
  return {present(Direction::kRowwise), present(Direction::kColumnwise)};
}

GemmOperand DebugQuantizedTensor::operand(Direction direction) const {
  return require(direction)->operand(direction);
}

Tensor DebugQuantizedTensor::dequantize(DType dtype, Direction direction) const {
  return require(direction)->dequantize(dtype, direction);
}

void DebugQuantizedTensor::update_usage(Usage wanted) {
  if (shared()) {
    rowwise_->update_usage(wanted);
    wanted_ = wanted;
    if (!wanted.rowwise && !wanted.columnwise) {
      rowwise_.reset();
      columnwise_.reset();
    }
    return;
  }
  QuantizedTensor* rowwise = wanted.rowwise ? require(Direction::kRowwise).get() : nullptr;
  QuantizedTensor* columnwise = wanted.columnwise ? require(Direction::kColumnwise).get() : nullptr;
  if (rowwise != nullptr) rowwise->update_usage({true, false});
  if (columnwise != nullptr) columnwise->update_usage({false, true});
  if (!wanted.rowwise) rowwise_.reset();
  if (!wanted.columnwise) columnwise_.reset();
  wanted_ = wanted;
}

const std::shared_ptr<QuantizedTensor>& DebugQuantizedTensor::get_tensor(bool transpose) const noexcept {
  if (!present(transpose ? Direction::kColumnwise : Direction::kRowwise)) return kNoTensor;
  return transpose ? columnwise_ : rowwise_;
}

void DebugQuantizedTensor::set_tensor(bool transpose, std::shared_ptr<QuantizedTensor> tensor) {
  const Direction direction = transpose ? Direction::kColumnwise : Direction::kRowwise;
  AMAXSCOPE_CHECK(tensor == nullptr || tensor->shape() == shape_, ErrorCode::kTensor,
                  "a {} operand of shape {} for a tensor of shape {}", to_string(direction),
                  to_string(tensor->shape()), to_string(shape_));
  (transpose ? wanted_.columnwise : wanted_.rowwise) = tensor != nullptr;
  (transpose ? standard_.columnwise : standard_.rowwise) = false;
  (transpose ? columnwise_ : rowwise_) = std::move(tensor);
}

std::vector<std::shared_ptr<QuantizedTensor>> DebugQuantizedTensor::prepare_for_saving() {
  AMAXSCOPE_CHECK(saved_ == Saved::kNothing, ErrorCode::kUsage, "a tensor of shape {} is saved already",
                  to_string(shape_));
  std::vector<std::shared_ptr<QuantizedTensor>> members;
  if (shared()) {
    saved_ = Saved::kShared;
    members.push_back(std::move(rowwise_));
    columnwise_.reset();
    return members;
  }
  const bool rowwise = rowwise_ != nullptr;
  const bool columnwise = columnwise_ != nullptr;
  if (rowwise) members.push_back(std::move(rowwise_));
  if (columnwise) members.push_back(std::move(columnwise_));
  saved_ = rowwise ? (columnwise ? Saved::kBoth : Saved::kRowwise)
                   : (columnwise ? Saved::kColumnwise : Saved::kNothing);
  return members;
}

void DebugQuantizedTensor::restore_from_saved(std::vector<std::shared_ptr<QuantizedTensor>> members) {
  const std::size_t expected = saved_ == Saved::kNothing ? 0 : saved_ == Saved::kBoth ? 2 : 1;
  AMAXSCOPE_CHECK(members.size() == expected, ErrorCode::kUsage,
                  "{} members given back to a tensor of shape {} that handed out {}", members.size(),
                  to_string(shape_), expected);
  if (saved_ == Saved::kShared) columnwise_ = members.front();
  if (saved_ == Saved::kColumnwise || saved_ == Saved::kBoth) columnwise_ = std::move(members.back());
  if (saved_ != Saved::kColumnwise && saved_ != Saved::kNothing) rowwise_ = std::move(members.front());
  saved_ = Saved::kNothing;
}

std::shared_ptr<QuantizedTensor> as_debug_operand(const std::shared_ptr<QuantizedTensor>& operand) {
  if (dynamic_cast<const DebugQuantizedTensor*>(operand.get()) != nullptr) return operand;
  return std::make_shared<DebugQuantizedTensor>(operand->shape(), operand, operand);
}

}  // namespace amaxscope

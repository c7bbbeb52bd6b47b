// What a quantizer returns: a tensor as GEMM operands in one or both directions.
// Owned through shared_ptr, so that a training loop can keep it between forward and backward; mutation
// (update_usage, a quantizer's update) is for the owner, one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/tensor.hpp"
#include "kernels/gemm.hpp"
#include "runtime/names.hpp"

namespace amaxscope {

/// Directions that are wanted or present.
struct Usage {
  bool rowwise = true;
  bool columnwise = false;
  [[nodiscard]] bool has(Direction direction) const noexcept {
    return direction == Direction::kRowwise ? rowwise : columnwise;
  }
  friend bool operator==(const Usage&, const Usage&) = default;
};

/// A code format as records name it: "E4M3", "E4M3+E8M0 scales".
std::string format_name(DType codes, std::optional<DType> scales = std::nullopt);

class QuantizedTensor {
 public:
  virtual ~QuantizedTensor() = default;

  /// Logical shape [.., K] of the tensor that was quantized.
  [[nodiscard]] virtual const Shape& shape() const noexcept = 0;
  /// Format of the codes in a direction; a high-precision dtype where the direction was not quantized.
  [[nodiscard]] virtual DType format(Direction direction) const = 0;
  /// What the GEMM gets in a direction, in a word for records: "E5M2", "E2M1+E4M3 scales", "high precision",
  /// "E4M3, dequantized".
  [[nodiscard]] virtual std::string format_name(Direction direction) const;
  [[nodiscard]] virtual Usage usage() const noexcept = 0;
  /// The GEMM factor of a direction: rowwise stands for the logical [M, K] matrix, columnwise for its
  /// transpose [K, M]. A view into this object. Throws Error(kUsage) naming the direction when it is not
  /// there.
  [[nodiscard]] virtual GemmOperand operand(Direction direction) const = 0;
  /// The values the codes of a direction stand for, in the logical shape.
  [[nodiscard]] virtual Tensor dequantize(DType dtype, Direction direction = Direction::kRowwise) const = 0;
  /// Keeps what is wanted, makes a wanted direction from the other where the format allows (per-tensor FP8),
  /// frees the rest. Throws Error(kUsage) naming the direction when it cannot be made again.
  virtual void update_usage(Usage wanted) = 0;
};

/// Numbers that lie in device memory and are not changed again, for as long as somebody refers to them.
struct DeviceNumbers {
  std::shared_ptr<const Tensor> tensor;
  std::int64_t first = 0;
  [[nodiscard]] TensorView view(std::int64_t offset, std::int64_t count = 1) const {
    return tensor->view().slice(first + offset, count);
  }
};

/// A scale of codes and what decodes them: numbers of the host, or f32 [2] in device memory, where kernels
/// made them and the host need not know them.
class Float8Scale {
 public:
  Float8Scale(float scale);  // NOLINT(google-explicit-constructor): 1 / scale belongs to it
  Float8Scale(float scale, float scale_inv) : scale_(scale), scale_inv_(scale_inv) {}
  explicit Float8Scale(DeviceNumbers on_device) : on_device_(std::move(on_device)) {}

  [[nodiscard]] bool on_device() const noexcept { return on_device_.tensor != nullptr; }
  /// As numbers. The first call waits for a device. Not for two threads at once.
  [[nodiscard]] float scale() const;
  [[nodiscard]] float scale_inv() const;
  /// f32 [1] where they are; views into this object, or into device memory.
  [[nodiscard]] TensorView scale_view() const;
  [[nodiscard]] TensorView scale_inv_view() const;
  /// The same on the device of `like`; not blocking. Itself on the CPU.
  [[nodiscard]] Float8Scale beside(const TensorView& like) const;

 private:
  void fetch() const;

  mutable float scale_ = 0.0F;  ///< 0: not known here
  mutable float scale_inv_ = 0.0F;
  DeviceNumbers on_device_;
};

/// One set of FP8 codes under one scale.
class Float8Tensor final : public QuantizedTensor {
 public:
  /// codes [.., K] rowwise, or [K, M] when only columnwise; either may be undefined, not both. Codes on a
  /// device have their scale there.
  Float8Tensor(Shape shape, DType format, Tensor rowwise_codes, Tensor columnwise_codes, Float8Scale scale);
  Float8Tensor(Shape shape, DType format, Tensor rowwise_codes, Tensor columnwise_codes, float scale,
               float scale_inv)
      : Float8Tensor(shape, format, std::move(rowwise_codes), std::move(columnwise_codes),
                     Float8Scale(scale, scale_inv)) {}

  [[nodiscard]] const Shape& shape() const noexcept override { return shape_; }
  [[nodiscard]] DType format(Direction) const override { return format_; }
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] GemmOperand operand(Direction direction) const override;
  [[nodiscard]] Tensor dequantize(DType dtype, Direction direction) const override;
  void update_usage(Usage wanted) override;

  /// As Float8Scale: the first call waits for a device.
  [[nodiscard]] float scale() const { return scale_.scale(); }
  [[nodiscard]] float scale_inv() const { return scale_.scale_inv(); }
  [[nodiscard]] const Float8Scale& scales() const noexcept { return scale_; }
  /// Throws Error(kUsage) when the direction is not there.
  [[nodiscard]] const Tensor& codes(Direction direction) const;
  /// Replaces everything but the shape; for Quantizer::update.
  void assign(Tensor rowwise_codes, Tensor columnwise_codes, Float8Scale scale);
  void assign(Tensor rowwise_codes, Tensor columnwise_codes, float scale, float scale_inv) {
    assign(std::move(rowwise_codes), std::move(columnwise_codes), Float8Scale(scale, scale_inv));
  }

 private:
  Shape shape_;
  DType format_;
  Tensor rowwise_;
  Tensor columnwise_;
  Float8Scale scale_;
};

/// A tensor that stays in high precision: both directions are the same memory.
class HighPrecisionTensor final : public QuantizedTensor {
 public:
  explicit HighPrecisionTensor(Tensor values);
  /// Values that codes of this name stood for, before they were dequantized.
  HighPrecisionTensor(Tensor values, std::string dequantized_from);
  /// Borrows: the memory behind the view must outlive this object (a parameter, the layer's own input).
  explicit HighPrecisionTensor(const TensorView& borrowed);

  [[nodiscard]] const Shape& shape() const noexcept override { return view_.shape(); }
  [[nodiscard]] DType format(Direction) const override { return view_.dtype(); }
  [[nodiscard]] std::string format_name(Direction direction) const override;
  [[nodiscard]] Usage usage() const noexcept override { return {true, true}; }
  [[nodiscard]] GemmOperand operand(Direction direction) const override;
  [[nodiscard]] Tensor dequantize(DType dtype, Direction direction) const override;
  void update_usage(Usage) override {}

  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  /// The name that it was made with; empty: the values stood for no codes.
  [[nodiscard]] const std::string& dequantized_from() const noexcept { return dequantized_from_; }
  /// Copies new values in (same shape and dtype). Throws Error(kUsage) on a borrowed tensor.
  void assign(const TensorView& values);

 private:
  Tensor owned_;
  TensorView view_;
  std::string dequantized_from_;
};

}  // namespace amaxscope

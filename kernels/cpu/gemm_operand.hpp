// A GEMM factor widened to the type the product is computed in. Private to kernels/cpu.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "kernels/codec/fp8.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/gemm.hpp"

namespace amaxscope::cpu {

/// Whether a rotation that one factor carries is in the other, too, and falls out of their product.
inline bool rotation_cancels(const GemmOperand& a, const GemmOperand& b) noexcept {
  return a.blocks && b.blocks && a.blocks->rotated && b.blocks->rotated;
}

/// Every element of data as T, codes decoded without their scale. T is float or double.
template <class T>
void widen(const TensorView& data, std::string_view operation, std::string_view name, T* out) {
  const std::int64_t count = data.numel();
  if (is_fp8(data.dtype())) {
    const auto* codes = data_of<std::uint8_t>(data);
    const auto& values = data.dtype() == DType::kE4M3 ? kFp8Values<DType::kE4M3> : kFp8Values<DType::kE5M2>;
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(values[codes[i]]);
    return;
  }
  if constexpr (std::is_same_v<T, double>) {
    if (data.dtype() == DType::kF64) {
      std::copy_n(data_of<double>(data), count, out);
      return;
    }
  }
  with_compute_type(operation, name, data, [&]<class From>(std::type_identity<From>) {
    const From* from = data_of<From>(data);
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(to_float(from[i]));
  });
}

/// The factor's elements as T, in the order of its data; block-scaled codes with their scales.
template <class T>
void widen_operand(const GemmOperand& operand, bool keep_rotation, std::string_view operation,
                   std::string_view name, T* out) {
  if (!operand.blocks) return widen(operand.data, operation, name, out);
  require_valid(*operand.blocks, name);
  decode_blocks(*operand.blocks, keep_rotation ? Rotation::kKeep : Rotation::kUndo, out);
}

/// Points into the tensor when it is of type T already, else at a widened copy that it owns.
template <class T>
class WideOperand {
 public:
  WideOperand(const GemmOperand& operand, bool keep_rotation, std::string_view operation,
              std::string_view name) {
    if (operand.data.dtype() == DTypeOf<T>::value) {
      values_ = data_of<T>(operand.data);
      return;
    }
    copy_ = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(operand.data.numel()));
    widen_operand(operand, keep_rotation, operation, name, copy_.get());
    values_ = copy_.get();
  }
  [[nodiscard]] const T* data() const noexcept { return values_; }

 private:
  std::unique_ptr<T[]> copy_;
  const T* values_ = nullptr;
};

/// Contiguous CPU matrices that fit together, out [a.rows(), b.rows()].
inline void require_gemm(std::string_view operation, const GemmOperand& a, const GemmOperand& b,
                         const MutableTensorView& out) {
  require_contiguous(operation, "a", a.data);
  require_contiguous(operation, "b", b.data);
  require_contiguous(operation, "out", out);
  AMAXSCOPE_CHECK(a.depth() == b.depth(), ErrorCode::kTensor,
                  "{}: a is {} x {} and b {} x {}; the depths differ", operation, a.rows(), a.depth(),
                  b.rows(), b.depth());
  AMAXSCOPE_CHECK(out.rows() == a.rows() && out.cols() == b.rows(), ErrorCode::kTensor,
                  "{}: out has shape {}, wanted {} x {}", operation, to_string(out.shape()), a.rows(),
                  b.rows());
}

}  // namespace amaxscope::cpu

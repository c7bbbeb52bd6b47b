#include "kernels/gemm_error.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/gemm_operand.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "gemm_error";

/// An operand's values in fp64, lying as the operand lies.
struct Decoded {
  Tensor values;
  bool transposed;

  [[nodiscard]] GemmOperand operand() const { return {values.view(), transposed, 1.0F}; }
};

Decoded decode(const GemmOperand& operand, std::string_view name) {
  cpu::require_contiguous(kOperation, name, operand.data);
  Decoded decoded{Tensor(DType::kF64, {operand.data.rows(), operand.data.cols()}), operand.transposed};
  auto* values = decoded.values.values<double>().data();
  // A rotation is undone, so that each operand can be multiplied with the original of the other.
  cpu::widen_operand(operand, /*keep_rotation=*/false, kOperation, name, values);
  if (operand.scale_inv != 1.0F) {
    const auto factor = static_cast<double>(operand.scale_inv);
    for (std::int64_t i = 0; i < operand.data.numel(); ++i) values[i] *= factor;
  }
  return decoded;
}

void require_alike(std::string_view name, const GemmOperand& operand, const GemmOperand& original) {
  AMAXSCOPE_CHECK(operand.rows() == original.rows() && operand.depth() == original.depth(),
                  ErrorCode::kTensor, "{}: {} is {} x {}, its original {} x {}", kOperation, name,
                  operand.rows(), operand.depth(), original.rows(), original.depth());
}

bool same(const Decoded& a, const Decoded& b) {
  return a.transposed == b.transposed &&
         std::ranges::equal(a.values.view().values<double>(), b.values.view().values<double>());
}

/// a * b^T in fp64.
std::shared_ptr<const Tensor> product_of(const Decoded& a, const Decoded& b) {
  const GemmOperand left = a.operand();
  const GemmOperand right = b.operand();
  auto product = std::make_shared<Tensor>(DType::kF64, Shape{left.rows(), right.rows()});
  gemm(left, right, *product);
  return product;
}

/// The error of one element, taken apart.
struct Element {
  double reference;
  double with_a;     ///< a B^T
  double with_b;     ///< A b^T
  double with_both;  ///< a b^T
  double result;
};

void add(const Element& element, GemmError& sums) {
  const double error = element.result - element.reference;
  const double from_a = element.with_a - element.reference;
  const double from_b = element.with_b - element.reference;
  const double from_rest = element.with_both - element.with_a - from_b;
  const double from_accumulation = element.result - element.with_both;
  ++sums.numel;
  if (!std::isfinite(error) || !std::isfinite(from_rest) || !std::isfinite(from_accumulation)) {
    ++sums.nonfinite;
    return;
  }
  sums.error_squares += error * error;
  sums.reference_squares += element.reference * element.reference;
  sums.result_squares += element.result * element.result;
  sums.product += element.reference * element.result;
  sums.error_reference += error * element.reference;
  sums.from_a += error * from_a;
  sums.from_b += error * from_b;
  sums.from_rest += error * from_rest;
  sums.from_accumulation += error * from_accumulation;
}

}  // namespace

GemmError& GemmError::operator+=(const GemmError& other) noexcept {
  numel += other.numel;
  nonfinite += other.nonfinite;
  error_squares += other.error_squares;
  reference_squares += other.reference_squares;
  result_squares += other.result_squares;
  product += other.product;
  error_reference += other.error_reference;
  from_a += other.from_a;
  from_b += other.from_b;
  from_rest += other.from_rest;
  from_accumulation += other.from_accumulation;
  return *this;
}

GemmError gemm_error(const GemmOperand& a, const GemmOperand& b, const GemmOperand& original_a,
                     const GemmOperand& original_b, const TensorView& result) {
  require_alike("a", a, original_a);
  require_alike("b", b, original_b);
  cpu::require_shape(kOperation, "result", result, {a.rows(), b.rows()});
  const Decoded used_a = decode(a, "a");
  const Decoded used_b = decode(b, "b");
  const Decoded wanted_a = decode(original_a, "original a");
  const Decoded wanted_b = decode(original_b, "original b");
  const bool exact_a = same(used_a, wanted_a);
  const bool exact_b = same(used_b, wanted_b);
  const auto reference = product_of(wanted_a, wanted_b);
  const auto with_a = exact_a ? reference : product_of(used_a, wanted_b);
  const auto with_b = exact_b ? reference : product_of(wanted_a, used_b);
  const auto with_both = exact_a ? with_b : exact_b ? with_a : product_of(used_a, used_b);

  const auto references = reference->values<double>();
  const auto with_as = with_a->values<double>();
  const auto with_bs = with_b->values<double>();
  const auto with_boths = with_both->values<double>();
  GemmError sums;
  cpu::with_real_type(kOperation, "result", result, [&]<class T>(std::type_identity<T>) {
    const T* values = cpu::data_of<T>(result);
    for (std::int64_t i = 0; i < result.numel(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      double value = 0;
      if constexpr (std::is_same_v<T, double>) {
        value = values[i];
      } else {
        value = static_cast<double>(to_float(values[i]));
      }
      add({references[at], with_as[at], with_bs[at], with_boths[at], value}, sums);
    }
  });
  return sums;
}

}  // namespace amaxscope

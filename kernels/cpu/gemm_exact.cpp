#include <algorithm>
#include <array>
#include <vector>

#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/gemm_operand.hpp"
#include "kernels/gemm.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "gemm_exact";

/// The operand as a depth x rows matrix of doubles: one k after the other, as the sums run.
std::vector<double> by_depth(const GemmOperand& operand, bool keep_rotation, std::string_view name) {
  std::vector<double> values(static_cast<std::size_t>(operand.data.numel()));
  cpu::widen_operand(operand, keep_rotation, kOperation, name, values.data());
  if (operand.transposed) return values;
  std::vector<double> turned(values.size());
  const auto rows = static_cast<std::size_t>(operand.rows());
  const auto depth = static_cast<std::size_t>(operand.depth());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t k = 0; k < depth; ++k) turned[k * rows + row] = values[row * depth + k];
  }
  return turned;
}

// A tile of sums that stays in L1 while k runs over the whole depth.
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileCols = 128;

}  // namespace

void gemm_exact(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out) {
  cpu::require_gemm(kOperation, a, b, out);
  AMAXSCOPE_CHECK(out.dtype() == DType::kF64, ErrorCode::kTensor, "{}: out is {}, wanted f64", kOperation,
                  to_string(out.dtype()));
  const bool keep_rotation = cpu::rotation_cancels(a, b);
  const std::vector<double> left = by_depth(a, keep_rotation, "a");
  const std::vector<double> right = by_depth(b, keep_rotation, "b");
  const auto rows = static_cast<std::size_t>(a.rows());
  const auto cols = static_cast<std::size_t>(b.rows());
  const auto depth = static_cast<std::size_t>(a.depth());
  auto* result = cpu::data_of<double>(out);
  for (std::size_t col = 0; col < cols; col += kTileCols) {
    const std::size_t width = std::min(kTileCols, cols - col);
    for (std::size_t row = 0; row < rows; row += kTileRows) {
      const std::size_t height = std::min(kTileRows, rows - row);
      std::array<std::array<double, kTileCols>, kTileRows> sums{};
      for (std::size_t k = 0; k < depth; ++k) {
        const double* factors = right.data() + k * cols + col;
        for (std::size_t i = 0; i < height; ++i) {
          const double factor = left[k * rows + row + i];
          for (std::size_t j = 0; j < width; ++j) sums[i][j] += factor * factors[j];
        }
      }
      for (std::size_t i = 0; i < height; ++i) {
        std::copy_n(sums[i].data(), width, result + (row + i) * cols + col);
      }
    }
  }
}

void scale_and_round(const TensorView& sums, double factor, const MutableTensorView& out) {
  constexpr std::string_view kName = "scale_and_round";
  cpu::require_contiguous(kName, "sums", sums);
  cpu::require_shape(kName, "out", out, sums.shape());
  AMAXSCOPE_CHECK(sums.dtype() == DType::kF64, ErrorCode::kTensor, "{}: sums is {}, wanted f64", kName,
                  to_string(sums.dtype()));
  cpu::with_compute_type(kName, "out", out, [&]<class T>(std::type_identity<T>) {
    const double* from = cpu::data_of<double>(sums);
    T* to = cpu::data_of<T>(out);
    for (std::int64_t i = 0; i < sums.numel(); ++i) to[i] = narrow<T>(from[i] * factor);
  });
}

}  // namespace amaxscope

// What holds of every block-scaled format.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/block_support.hpp"

namespace amaxscope::test {
namespace {

struct Format {
  std::string name;
  bool two_dimensional;
  std::int64_t multiple;  ///< M and K that the tests may use are multiples of this
  DType codes;
  std::function<Both(const TensorView&)> quantize;
};

Both mxfp8(const TensorView& x, DType format, bool two_dimensional) {
  Both q{{mxfp8_layout(format, false, two_dimensional), x}, {mxfp8_layout(format, true, two_dimensional), x}};
  quantize_mxfp8(x, two_dimensional, {.rowwise = q.rowwise.output(), .columnwise = q.columnwise.output()});
  return q;
}
Both blocks(const TensorView& x, DType format, bool two_dimensional, bool power_of_two) {
  Both q{{fp8_block_layout(format, false, two_dimensional), x},
         {fp8_block_layout(format, true, two_dimensional), x}};
  quantize_fp8_blocks(x, {.power_of_two = power_of_two}, two_dimensional,
                      {.rowwise = q.rowwise.output(), .columnwise = q.columnwise.output()});
  return q;
}
Both nvfp4(const TensorView& x, bool two_dimensional) {
  const float amax = from_bits(nvfp4_amaxes(x, true, true, false)[0]);
  Both q{{nvfp4_layout(false, two_dimensional), x}, {nvfp4_layout(true, two_dimensional), x}};
  quantize_nvfp4(x, {.two_dimensional = two_dimensional, .rowwise_amax = amax, .columnwise_amax = amax},
                 {.rowwise = q.rowwise.output(), .columnwise = q.columnwise.output()});
  q.rowwise.tensor_scale = nvfp4_tensor_scale(amax, 448.0F);
  q.columnwise.tensor_scale = q.rowwise.tensor_scale;
  return q;
}

class BlockFormat : public testing::TestWithParam<Format> {
 protected:
  [[nodiscard]] Both quantized(const TensorView& x) const { return GetParam().quantize(x); }
  /// A shape with cut blocks where the format allows them.
  [[nodiscard]] Shape shape() const {
    return GetParam().multiple == 1 ? Shape{150, 261}
                                    : Shape{GetParam().multiple * 3, GetParam().multiple * 5};
  }
  [[nodiscard]] Tensor hard() const {
    const Shape s = shape();
    return matrix_of(hard_values(s.rows(), s.cols(), 77), s.rows(), s.cols());
  }
  static Tensor decoded(const Quantized& q, const Shape& shape) {
    Tensor values(DType::kF32, shape);
    dequantize_blocks(q.view(), values);
    return values;
  }
};

TEST_P(BlockFormat, PaddingIsZeroAndOnlyPaddingIsLeft) {
  const Both q = quantized(hard());
  for (const Quantized* side : {&q.rowwise, &q.columnwise}) {
    const BlockScaledView view = side->view();
    std::vector<bool> valid(static_cast<std::size_t>(side->scales.numel()), false);
    for (std::int64_t m = 0; m < view.rows(); ++m) {
      for (std::int64_t k = 0; k < view.cols(); ++k)
        valid[static_cast<std::size_t>(view.scale_index(m, k))] = true;
    }
    for (std::int64_t i = 0; i < side->scales.numel(); ++i) {
      if (valid[static_cast<std::size_t>(i)]) continue;
      ASSERT_EQ(side->scale_bits(i), 0U) << i;
    }
  }
}

TEST_P(BlockFormat, ScalesAreFinite) {
  Tensor x = hard();
  if (GetParam().codes == DType::kE2M1) {
    // Above FLT_MAX / 448 the product of a block scale and the tensor's amax overflows, as in the reference.
    for (float& value : x.values<float>()) value = std::abs(value) > 0x1p119F ? 1.0F : value;
  }
  const Both q = quantized(x);
  for (const Quantized* side : {&q.rowwise, &q.columnwise}) {
    const BlockScaledView view = side->view();
    for (std::int64_t i = 0; i < view.blocks_down(); ++i) {
      for (std::int64_t j = 0; j < view.blocks_across(); ++j) {
        ASSERT_TRUE(std::isfinite(view.scale(i, j)));
        ASSERT_TRUE(view.scale(i, j) > 0.0F || GetParam().codes == DType::kE2M1);
      }
    }
  }
}

TEST_P(BlockFormat, ColumnwiseIsRowwiseOfTheTranspose) {
  const Tensor x = hard();
  const Both q = quantized(x);
  const Both turned = quantized(transpose_of(x));
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    for (std::int64_t k = 0; k < x.cols(); ++k) {
      ASSERT_EQ(q.columnwise.view().code(m, k), turned.rowwise.view().code(k, m)) << m << ' ' << k;
      const std::uint32_t scale = q.columnwise.scale_bits(q.columnwise.view().scale_index(m, k));
      ASSERT_EQ(scale, turned.rowwise.scale_bits(turned.rowwise.view().scale_index(k, m)));
    }
  }
}

TEST_P(BlockFormat, OnlySquareBlocksHaveOneSetOfCodes) {
  const Tensor x = hard();
  const Both q = quantized(x);
  std::int64_t different = 0;
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    for (std::int64_t k = 0; k < x.cols(); ++k) {
      different += q.rowwise.view().code(m, k) != q.columnwise.view().code(m, k) ? 1 : 0;
    }
  }
  EXPECT_EQ(different == 0, GetParam().two_dimensional) << different;
}

TEST_P(BlockFormat, TheSignIsCarriedOver) {
  const Tensor x = hard();
  Tensor negative = x.clone();
  for (float& value : negative.values<float>()) value = -value;
  const Both q = quantized(x);
  const Both n = quantized(negative);
  const unsigned sign = GetParam().codes == DType::kE2M1 ? 0x8U : 0x80U;
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    for (std::int64_t k = 0; k < x.cols(); ++k) {
      const unsigned flipped = std::isnan(at(x, m, k)) ? 0U : sign;
      ASSERT_EQ(q.rowwise.view().code(m, k) ^ flipped, n.rowwise.view().code(m, k));
    }
  }
}

TEST_P(BlockFormat, OrderWithinABlockIsKept) {
  Tensor x = sample_tensor(shape(), 31);
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    std::ranges::sort(x.values<float>().subspan(static_cast<std::size_t>(m * x.cols()),
                                                static_cast<std::size_t>(x.cols())));
  }
  const Both q = quantized(x);
  const Tensor values = decoded(q.rowwise, x.shape());
  const std::int64_t width = q.rowwise.layout.block_cols;
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    for (std::int64_t k = 1; k < x.cols(); ++k) {
      if (k % width == 0) continue;
      ASSERT_LE(at(values, m, k - 1), at(values, m, k)) << m << ' ' << k;
    }
  }
}

TEST_P(BlockFormat, ErrorsAreAtMostHalfAStepOrTheBlocksSaturation) {
  const Tensor x = sample_tensor(shape(), 13);
  const Both q = quantized(x);
  const MinifloatGrid grid = grid_of(GetParam().codes);
  for (const Quantized* side : {&q.rowwise, &q.columnwise}) {
    const Tensor values = decoded(*side, x.shape());
    const BlockScaledView view = side->view();
    for (std::int64_t m = 0; m < x.rows(); ++m) {
      for (std::int64_t k = 0; k < x.cols(); ++k) {
        const double scale =
            static_cast<double>(view.scale(m / view.layout.block_rows, k / view.layout.block_cols));
        const double magnitude = std::abs(static_cast<double>(at(x, m, k))) / scale;
        const auto above = std::ranges::lower_bound(grid.values(), magnitude);
        const double error =
            std::abs(static_cast<double>(at(values, m, k)) - static_cast<double>(at(x, m, k))) / scale;
        if (above == grid.values().end()) {
          // Only NVFP4's block scale can be rounded below what the amax needs: by half a step of E4M3.
          ASSERT_LE(magnitude,
                    GetParam().codes == DType::kE2M1 ? 6.0 * 1.07 : grid.values().back() * 1.000001);
          continue;
        }
        const double below = above == grid.values().begin() ? 0.0 : *(above - 1);
        ASSERT_LE(error, (*above - below) / 2 * 1.000001) << m << ' ' << k;
      }
    }
  }
}

TEST_P(BlockFormat, QuantizingWhatWasQuantizedChangesNothing) {
  // Magnitudes within a factor of 2^8, so that no scale is subnormal.
  Tensor x = sample_tensor(shape(), 5);
  for (float& value : x.values<float>()) value = std::copysign(std::max(std::abs(value), 0x1p-5F), value);
  const Both first = quantized(x);
  const Tensor values = decoded(first.rowwise, x.shape());
  const Both second = quantized(values);
  const Tensor again = decoded(second.rowwise, x.shape());
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    for (std::int64_t k = 0; k < x.cols(); ++k) {
      // fp32 scales may come out an ulp away; powers of two may not.
      ASSERT_NEAR(at(again, m, k), at(values, m, k), std::abs(at(values, m, k)) * 3e-7F) << m << ' ' << k;
    }
  }
}

TEST_P(BlockFormat, RepresentableValuesComeBack) {
  const Format& format = GetParam();
  const Shape s = format.multiple == 1 ? Shape{144, 272} : shape();
  const MinifloatGrid grid = grid_of(format.codes);
  Tensor x(DType::kF32, s);
  std::mt19937 engine(4);
  std::uniform_int_distribution<std::size_t> code(0, grid.values().size() - 1);
  std::bernoulli_distribution negative;
  const auto largest = static_cast<float>(grid.values().back());
  // Every 16 elements of each row hold the largest code, so that each block of any format has scale 1 by its
  // definition; a 2688 somewhere gives NVFP4's tensor level 1.
  for (std::int64_t m = 0; m < s.rows(); ++m) {
    for (std::int64_t k = 0; k < s.cols(); ++k) {
      auto value = static_cast<float>(grid.values()[code(engine)]);
      if ((m + k) % 16 == 0) value = largest;
      x.values<float>()[static_cast<std::size_t>(m * s.cols() + k)] = negative(engine) ? -value : value;
    }
  }
  if (format.codes == DType::kE2M1) {
    for (std::int64_t m = 0; m < 16; ++m) {
      for (std::int64_t k = 0; k < 16; ++k)
        x.values<float>()[static_cast<std::size_t>(m * s.cols() + k)] *= 448.0F;
    }
  }
  const Both q = quantized(x);
  for (const Quantized* side : {&q.rowwise, &q.columnwise}) {
    const Tensor values = decoded(*side, s);
    for (std::size_t i = 0; i < values.values<float>().size(); ++i) {
      ASSERT_EQ(bits_of(values.values<float>()[i]), bits_of(x.values<float>()[i])) << i;
    }
  }
}

TEST_P(BlockFormat, NarrowInputsAreWidenedFirst) {
  const Tensor x = sample_tensor(shape(), 17);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor narrow = converted(x, dtype);
    const Both q = quantized(narrow);
    const Both wide = quantized(converted(narrow, DType::kF32));
    EXPECT_EQ(
        std::memcmp(q.rowwise.codes.view().data(), wide.rowwise.codes.view().data(), q.rowwise.codes.bytes()),
        0);
    EXPECT_EQ(std::memcmp(q.columnwise.scales.view().data(), wide.columnwise.scales.view().data(),
                          q.columnwise.scales.bytes()),
              0);
  }
}

TEST_P(BlockFormat, EmptyTensorsHaveNoBlocks) {
  for (const Shape empty : {Shape{0, GetParam().multiple}, Shape{GetParam().multiple, 0}, Shape{0, 0}}) {
    const Tensor x(DType::kF32, empty);
    const Both q = quantized(x);
    EXPECT_EQ(q.rowwise.view().block_count(), 0);
    EXPECT_EQ(q.columnwise.view().block_count(), 0);
    Tensor values(DType::kF32, empty);
    dequantize_blocks(q.columnwise.view(), values);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BlockFormat,
    testing::Values(
        Format{"mxfp8_e4m3", false, 32, DType::kE4M3,
               [](const TensorView& x) { return mxfp8(x, DType::kE4M3, false); }},
        Format{"mxfp8_e5m2", false, 32, DType::kE5M2,
               [](const TensorView& x) { return mxfp8(x, DType::kE5M2, false); }},
        Format{"mxfp8_2d", true, 32, DType::kE4M3,
               [](const TensorView& x) { return mxfp8(x, DType::kE4M3, true); }},
        Format{"block", false, 1, DType::kE4M3,
               [](const TensorView& x) { return blocks(x, DType::kE4M3, false, true); }},
        Format{"block_2d", true, 1, DType::kE4M3,
               [](const TensorView& x) { return blocks(x, DType::kE4M3, true, true); }},
        Format{"block_f32_scales", false, 1, DType::kE5M2,
               [](const TensorView& x) { return blocks(x, DType::kE5M2, false, false); }},
        Format{"nvfp4", false, 16, DType::kE2M1, [](const TensorView& x) { return nvfp4(x, false); }},
        Format{"nvfp4_2d", true, 16, DType::kE2M1, [](const TensorView& x) { return nvfp4(x, true); }}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace amaxscope::test

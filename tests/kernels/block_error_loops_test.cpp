// The errors of block-scaled codes have the bits of sums that are made one element after the other: every
// instruction set's loops, and quantization_error as a whole, for every layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/cpu/block_error_loops.hpp"
#include "kernels/quantization_error.hpp"
#include "tests/kernels/block_support.hpp"
#include "tests/kernels/loops_support.hpp"

namespace amaxscope::test {
namespace {

using cpu::BlockErrorLoops;
using cpu::kErrorLanes;
using cpu::kErrorStretch;
using cpu::LaneErrors;
using cpu::LaneScales;

struct Stretch {
  alignas(64) std::array<float, kErrorStretch> values{};
};

void expect_same(const LaneErrors& a, const LaneErrors& b) {
  for (std::size_t lane = 0; lane < kErrorLanes; ++lane) {
    SCOPED_TRACE(lane);
    const bool finite = b.max_error[lane] < bits_of(kInf);
    ASSERT_EQ(a.max_error[lane] < bits_of(kInf), finite);
    if (!finite) continue;
    EXPECT_EQ(bits_of(a.error_squares[lane]), bits_of(b.error_squares[lane]));
    EXPECT_EQ(bits_of(a.signal_squares[lane]), bits_of(b.signal_squares[lane]));
    EXPECT_EQ(bits_of(a.quantized_squares[lane]), bits_of(b.quantized_squares[lane]));
    EXPECT_EQ(bits_of(a.products[lane]), bits_of(b.products[lane]));
    EXPECT_EQ(bits_of(a.saturated_squares[lane]), bits_of(b.saturated_squares[lane]));
    EXPECT_EQ(bits_of(a.flushed_squares[lane]), bits_of(b.flushed_squares[lane]));
    EXPECT_EQ(a.overflows[lane], b.overflows[lane]);
    EXPECT_EQ(a.saturated[lane], b.saturated[lane]);
    EXPECT_EQ(a.underflows[lane], b.underflows[lane]);
    EXPECT_EQ(a.largest[lane], b.largest[lane]);
    EXPECT_EQ(a.max_error[lane], b.max_error[lane]);
  }
}

/// One scale of each kind: 1, odd ones, subnormal, next to FLT_MAX.
LaneScales mixed_scales(float largest_code, float saturates_from) {
  LaneScales scales{.scale = {}, .limit = {}, .saturates_from = saturates_from};
  constexpr std::array<float, 8> kScales = {1.0F,     0.37F, 0x1p-140F, 0x1.8p-149F,
                                            0x1p118F, 3.1F,  0x1p-5F,   0x1.FFp-3F};
  for (std::size_t lane = 0; lane < kErrorLanes; ++lane) {
    scales.scale[lane] = kScales[lane % kScales.size()];
    scales.limit[lane] = largest_code * scales.scale[lane];
  }
  return scales;
}

TEST(BlockErrorLoops, SumsAreThoseOfTheReference) {
  const LaneScales scales = mixed_scales(448.0F, 464.0F);
  for_each_target([&](const cpu::Loops& loops, const cpu::Loops& reference) {
    for (const bool specials : {false, true}) {
      LaneErrors a;
      LaneErrors b;
      for (std::size_t steps = 0; steps <= cpu::kErrorSteps; ++steps) {
        const auto x = mixture<float>(kErrorStretch, static_cast<unsigned>(steps) + 3, specials);
        Stretch original;
        Stretch values;
        for (std::size_t i = 0; i < kErrorStretch; ++i) {
          const float scale = scales.scale[i % kErrorLanes];
          // Values of codes near and far, zeros among them; every lane its own magnitude; some saturate.
          original.values[i] = std::isfinite(x[i]) && i % 3 == 0 ? x[i] * scale : x[i];
          if (i % 37 == 0) original.values[i] = scale * 464.0F;
          if (i % 41 == 0) original.values[i] = from_bits(bits_of(scale * 464.0F) - 1);
          values.values[i] = kFp8Values<DType::kE4M3>[(i * 7 + steps) % 127];
        }
        if (specials) values.values[steps % kErrorStretch] = kNaN;
        loops.block_errors->add(original.values.data(), values.values.data(), steps, scales, a);
        reference.block_errors->add(original.values.data(), values.values.data(), steps, scales, b);
        expect_same(a, b);
        if (testing::Test::HasFailure()) return;
        if (specials) a = b = LaneErrors{};
      }
      if (specials) continue;
      EXPECT_GT(*std::ranges::max_element(b.saturated), 0U);
      EXPECT_GT(*std::ranges::max_element(b.underflows), 0U);
    }
  });
}

TEST(BlockErrorLoops, InterleavesWidensAndDecodes) {
  for_each_target([](const cpu::Loops& loops, const cpu::Loops& reference) {
    const BlockErrorLoops& mine = *loops.block_errors;
    const BlockErrorLoops& theirs = *reference.block_errors;
    std::vector<float> rows(kErrorLanes * 80);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    for (std::size_t steps = 0; steps <= cpu::kErrorSteps; ++steps) {
      Stretch a;
      Stretch b;
      mine.interleave(rows.data(), steps + 7, steps, a.values.data());
      theirs.interleave(rows.data(), steps + 7, steps, b.values.data());
      ASSERT_EQ(a.values, b.values) << steps;
    }
    const std::vector<BF16> bf16 = all_upper_halves<BF16>(0);
    std::vector<F16> f16(65536);
    std::vector<std::uint8_t> pairs(65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      f16[i] = F16{static_cast<std::uint16_t>(i)};
      pairs[i] = static_cast<std::uint8_t>(i);
    }
    for (const std::size_t count : {0U, 1U, 7U, 15U, 16U, 17U, 33U, 65535U}) {
      std::vector<float> a(65536, 7.0F);
      std::vector<float> b = a;
      const auto expect_equal = [&] {
        for (std::size_t i = 0; i < a.size(); ++i) {
          if (std::isnan(b[i])) {
            ASSERT_TRUE(std::isnan(a[i]));
          } else {
            ASSERT_EQ(bits_of(a[i]), bits_of(b[i])) << i;
          }
        }
      };
      mine.widen_bf16(bf16.data() + 1, count, a.data());
      theirs.widen_bf16(bf16.data() + 1, count, b.data());
      expect_equal();
      mine.widen_f16(f16.data() + 1, count, a.data());
      theirs.widen_f16(f16.data() + 1, count, b.data());
      expect_equal();
      mine.decode_e2m1(pairs.data(), count, a.data());
      theirs.decode_e2m1(pairs.data(), count, b.data());
      expect_equal();
    }
  });
}

/// The errors of a block, from the header's words, one element after the other.
QuantizationError naive_block(const std::vector<float>& x, const BlockScaledView& codes, std::int64_t i,
                              std::int64_t j) {
  const BlockLayout& layout = codes.layout;
  const CodeGrid grid = code_grid(layout.format);
  const float scale = codes.scale(i, j);
  QuantizationError sums;
  const auto& values = cpu::values_of_codes(layout.format);
  for (std::int64_t row = i * layout.block_rows; row < std::min((i + 1) * layout.block_rows, codes.rows());
       ++row) {
    for (std::int64_t col = j * layout.block_cols; col < std::min((j + 1) * layout.block_cols, codes.cols());
         ++col) {
      const float original = x[static_cast<std::size_t>(row * codes.cols() + col)];
      const float q = values[codes.code(row, col)] * scale;
      const float magnitude = std::abs(original);
      const bool valid = std::isfinite(original) && std::isfinite(q);
      const double from = valid ? static_cast<double>(original) : 0.0;
      const double to = valid ? static_cast<double>(q) : 0.0;
      const bool saturated = scale > 0 && magnitude / scale >= grid.saturates_from;
      const bool flushed = magnitude > 0 && (q == 0.0F || scale == 0.0F);
      ++sums.numel;
      sums.nan += std::isnan(original) ? 1U : 0U;
      sums.compared += valid ? 1U : 0U;
      sums.underflows += flushed ? 1U : 0U;
      sums.overflows += scale > 0 && magnitude > grid.max * scale ? 1U : 0U;
      sums.saturated += saturated ? 1U : 0U;
      sums.error_squares += (from - to) * (from - to);
      sums.signal_squares += from * from;
      sums.quantized_squares += to * to;
      sums.product += from * to;
      sums.saturated_squares += saturated ? from * from : 0.0;
      sums.flushed_squares += flushed ? from * from : 0.0;
      sums.max_error = std::max(sums.max_error, static_cast<float>(std::abs(from - to)));
    }
  }
  return sums;
}

void expect_naive(const TensorView& x, const Quantized& codes) {
  const BlockScaledView view = codes.view();
  Tensor wide = converted(x, DType::kF32);
  std::vector<float> values(wide.values<float>().begin(), wide.values<float>().end());
  if (view.rotated) {
    for (std::int64_t row = 0; row < view.rows(); row += 16) {
      for (std::int64_t col = 0; col < view.cols(); ++col) {
        std::array<float, 16> group;
        const auto place = [&](std::size_t k) {
          return static_cast<std::size_t>((row + static_cast<std::int64_t>(k)) * view.cols() + col);
        };
        for (std::size_t k = 0; k < 16; ++k) group[k] = values[place(k)];
        rotate(group.data());
        for (std::size_t k = 0; k < 16; ++k) values[place(k)] = group[k];
      }
    }
  }
  QuantizationError expected;
  double worst = 0;
  std::uint64_t flushed = 0;
  for (std::int64_t i = 0; i < view.blocks_down(); ++i) {
    for (std::int64_t j = 0; j < view.blocks_across(); ++j) {
      const QuantizationError block = naive_block(values, view, i, j);
      expected += block;
      worst = std::max(worst, block.error_squares);
      flushed += block.underflows > 0 ? 1U : 0U;
    }
  }
  const BlockQuantizationError error = quantization_error(x, view);
  EXPECT_EQ(error.blocks, static_cast<std::uint64_t>(view.block_count()));
  EXPECT_EQ(error.flushed_blocks, flushed);
  EXPECT_EQ(bits_of(error.worst[0].error_squares), bits_of(worst));
  const QuantizationError& sums = error.elements;
  EXPECT_EQ(sums.numel, expected.numel);
  EXPECT_EQ(sums.nan, expected.nan);
  EXPECT_EQ(sums.compared, expected.compared);
  EXPECT_EQ(sums.underflows, expected.underflows);
  EXPECT_EQ(sums.overflows, expected.overflows);
  EXPECT_EQ(sums.saturated, expected.saturated);
  EXPECT_EQ(bits_of(sums.error_squares), bits_of(expected.error_squares));
  EXPECT_EQ(bits_of(sums.signal_squares), bits_of(expected.signal_squares));
  EXPECT_EQ(bits_of(sums.quantized_squares), bits_of(expected.quantized_squares));
  EXPECT_EQ(bits_of(sums.product), bits_of(expected.product));
  EXPECT_EQ(bits_of(sums.saturated_squares), bits_of(expected.saturated_squares));
  EXPECT_EQ(bits_of(sums.flushed_squares), bits_of(expected.flushed_squares));
  EXPECT_EQ(bits_of(sums.max_error), bits_of(expected.max_error));
}

/// Both directions of codes, as they were made and with every 29th code another one.
void expect_naive(const TensorView& x, Both codes) {
  for (const bool changed : {false, true}) {
    for (Quantized* side : {&codes.rowwise, &codes.columnwise}) {
      SCOPED_TRACE(side == &codes.rowwise ? "rowwise" : "columnwise");
      auto* bytes = static_cast<std::uint8_t*>(side->codes.mutable_view().data());
      for (std::size_t i = 0; changed && i < side->codes.bytes(); i += 29)
        bytes[i] = static_cast<std::uint8_t>(bytes[i] + i);
      expect_naive(x, *side);
    }
  }
}

class BlockErrors : public testing::TestWithParam<DType> {
 protected:
  /// Values that are hard to scale, and tame ones in the other rows.
  [[nodiscard]] static Tensor matrix(std::int64_t rows, std::int64_t cols) {
    std::vector<float> values = hard_values(rows, cols, 5);
    const std::vector<float> tame = sample(rows * cols, 6);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / cols;
      if (row % 48 >= 16) values[i] = tame[i];
    }
    return converted(matrix_of(values, rows, cols), GetParam());
  }
};

TEST_P(BlockErrors, OfMxfp8) {
  const Tensor x = matrix(96, 32 * 21);
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const bool two_dimensional : {false, true}) {
      SCOPED_TRACE(two_dimensional);
      Both codes{{mxfp8_layout(format, false, two_dimensional), x},
                 {mxfp8_layout(format, true, two_dimensional), x}};
      quantize_mxfp8(x, two_dimensional,
                     {.rowwise = codes.rowwise.output(), .columnwise = codes.columnwise.output()});
      expect_naive(x, std::move(codes));
    }
  }
}

TEST_P(BlockErrors, OfFp8Blocks) {
  for (const Shape& shape : {Shape{150, 700}, Shape{256, 2304}, Shape{3, 130}}) {
    const Tensor x = matrix(shape.rows(), shape.cols());
    for (const bool two_dimensional : {false, true}) {
      for (const bool power_of_two : {false, true}) {
        SCOPED_TRACE(two_dimensional);
        Both codes{{fp8_block_layout(DType::kE4M3, false, two_dimensional), x},
                   {fp8_block_layout(DType::kE4M3, true, two_dimensional), x}};
        quantize_fp8_blocks(x, {.power_of_two = power_of_two}, two_dimensional,
                            {.rowwise = codes.rowwise.output(), .columnwise = codes.columnwise.output()});
        expect_naive(x, std::move(codes));
      }
    }
  }
}

TEST_P(BlockErrors, OfNvfp4) {
  const Tensor x = matrix(96, 16 * 37);
  for (const bool two_dimensional : {false, true}) {
    for (const bool rotated : {false, true}) {
      if (two_dimensional && rotated) continue;
      SCOPED_TRACE(testing::Message() << two_dimensional << rotated);
      const float amax = 11.0F;  // some saturate
      Both codes{{nvfp4_layout(false, two_dimensional), x}, {nvfp4_layout(true, two_dimensional), x}};
      quantize_nvfp4(x,
                     {.two_dimensional = two_dimensional,
                      .rotate_columnwise = rotated,
                      .rowwise_amax = amax,
                      .columnwise_amax = amax},
                     {.rowwise = codes.rowwise.output(), .columnwise = codes.columnwise.output()});
      codes.rowwise.tensor_scale = codes.columnwise.tensor_scale = nvfp4_tensor_scale(amax, 448.0F);
      codes.columnwise.rotated = rotated;
      expect_naive(x, std::move(codes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockErrors, testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace amaxscope::test

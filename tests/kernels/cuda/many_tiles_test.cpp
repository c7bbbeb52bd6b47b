// Every kernel on a small device, so that each block goes round its loop more than once and several blocks
// write one result: what a barrier too few between two rounds would break. Few enough threads for the thread
// sanitizer.
#include <cstring>

#include "kernels/amax.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cuda/gemm_scales.hpp"
#include "kernels/cuda/quantize.hpp"
#include "kernels/cuda/statistics.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/cuda/on_device.hpp"
#include "tests/kernels/cuda/tiled_scales.hpp"

namespace amaxscope::test {
namespace {

class ManyTiles : public CudaKernels {
 protected:
  void SetUp() override {
    CudaKernels::SetUp();
    set_multiprocessors(1);  // grids of eight blocks
  }
  void TearDown() override { set_multiprocessors(2); }
};

constexpr DType kType = DType::kBF16;

struct OneDirection {
  OneDirection(const BlockLayout& layout, const Tensor& x)
      : expected(layout, x),
        codes(layout.format, expected.codes.shape()),
        scales(layout.scale_format, expected.scales.shape()) {}
  [[nodiscard]] BlockOutput output() const { return {codes.view(), scales.view()}; }
  void check() const {
    EXPECT_TRUE(same_bytes(codes.host(), expected.codes));
    EXPECT_TRUE(same_bytes(scales.host(), expected.scales));
  }
  Quantized expected;
  OnDevice codes;
  OnDevice scales;
};

TEST_F(ManyTiles, Amax) {
  const Tensor x = converted(sample_tensor({40009}, 1), kType);
  const OnDevice out(DType::kU32, {1});
  cuda::amax(OnDevice(x).view(), out.view());
  EXPECT_EQ(out.host().values<std::uint32_t>()[0], amax_bits(x));
}

TEST_F(ManyTiles, ScalesForProducts) {
  for (const BlockLayout& layout : {nvfp4_layout(false, false), mxfp8_layout(DType::kE4M3, true, false)}) {
    const OnDevice codes(layout.format, layout.codes_shape(1312, 1312));
    const Tensor scales = numbered_scales(layout, 1312, 1312);
    const Tensor expected = tiled(layout, scales, 1312, 1312);
    const OnDevice there(scales.view());
    const OnDevice out(DType::kU8, expected.shape());
    cuda::tile_scales({.codes = codes.view(), .scales = there.view(), .layout = layout, .tensor_scale = {}},
                      out.view());
    EXPECT_TRUE(same_bytes(out.host(), expected));
  }
}

TEST_F(ManyTiles, CastAndTranspose) {
  const Tensor x = hard_tensor({1100, 140}, kType, 2);
  Tensor expected(DType::kE4M3, x.shape());
  Tensor expected_transposed(DType::kE4M3, {140, 1100});
  cast_transpose_to_fp8(x, scalar(3.0F), expected, expected_transposed);
  const OnDevice there(x);
  const OnDevice scale(scalar(3.0F));
  const OnDevice codes(DType::kE4M3, x.shape());
  const OnDevice transposed(DType::kE4M3, {140, 1100});
  cuda::cast_transpose_to_fp8(there.view(), scale.view(), codes.view(), transposed.view());
  EXPECT_TRUE(same_bytes(codes.host(), expected));
  EXPECT_TRUE(same_bytes(transposed.host(), expected_transposed));
  const OnDevice again(DType::kE4M3, x.shape());
  cuda::cast_to_fp8(there.view(), scale.view(), again.view());
  EXPECT_TRUE(same_bytes(again.host(), expected));
  Tensor values(kType, x.shape());
  dequantize_fp8(expected, scalar(0.25F), values);
  const OnDevice decoded(kType, x.shape());
  cuda::dequantize_fp8(codes.view(), OnDevice(scalar(0.25F)).view(), decoded.view());
  EXPECT_TRUE(same_bytes(decoded.host(), values));
}

TEST_F(ManyTiles, Mxfp8) {
  const Tensor x = hard_tensor({96, 1024}, kType, 3);
  OneDirection rowwise(mxfp8_layout(DType::kE4M3, false, false), x);
  OneDirection columnwise(mxfp8_layout(DType::kE4M3, true, false), x);
  quantize_mxfp8(x, false, {rowwise.expected.output(), columnwise.expected.output()});
  cuda::quantize_mxfp8(OnDevice(x).view(), false, {rowwise.output(), columnwise.output()});
  rowwise.check();
  columnwise.check();
}

TEST_F(ManyTiles, Fp8Blocks) {
  const Tensor x = hard_tensor({1100, 140}, kType, 4);
  for (const bool square : {false, true}) {
    OneDirection rowwise(fp8_block_layout(DType::kE5M2, false, square), x);
    OneDirection columnwise(fp8_block_layout(DType::kE5M2, true, square), x);
    quantize_fp8_blocks(x, {}, square, {rowwise.expected.output(), columnwise.expected.output()});
    cuda::quantize_fp8_blocks(OnDevice(x).view(), {}, square, {rowwise.output(), columnwise.output()});
    rowwise.check();
    columnwise.check();
  }
}

TEST_F(ManyTiles, Nvfp4) {
  const Tensor x = converted(sample_tensor({1040, 80}, 5), kType);
  for (const bool square : {false, true}) {
    Nvfp4Cast cast{.two_dimensional = square, .rotate_columnwise = !square};
    if (square) {
      cast.four_over_six = FourOverSix::kSquaredError;
    } else {
      cast.stochastic = StochasticRounding{3, 4};
    }
    const auto amaxes = nvfp4_amaxes(x, true, true, !square);
    cast.rowwise_amax = std::bit_cast<float>(amaxes[0]);
    cast.columnwise_amax = std::bit_cast<float>(amaxes[1]);
    OneDirection rowwise(nvfp4_layout(false, square), x);
    OneDirection columnwise(nvfp4_layout(true, square), x);
    quantize_nvfp4(x, cast, {rowwise.expected.output(), columnwise.expected.output()});
    const OnDevice there(x);
    const OnDevice on_device(DType::kU32, {2});
    cuda::nvfp4_amaxes(there.view(), !square, on_device.view());
    cuda::quantize_nvfp4(there.view(), cast, on_device.view(), {rowwise.output(), columnwise.output()});
    rowwise.check();
    columnwise.check();
    if (square) continue;
    BlockScaledView view = columnwise.expected.view();
    view.tensor_scale = nvfp4_tensor_scale(cast.columnwise_amax, cast.scale_max);
    view.rotated = true;
    Tensor values(kType, x.shape());
    dequantize_blocks(view, values);
    const OnDevice amax(Tensor::of<std::uint32_t>({amaxes[1]}, {1}));
    const OnDevice decoded(kType, x.shape());
    view.codes = columnwise.codes.view();
    view.scales = columnwise.scales.view();
    cuda::dequantize_blocks(view, amax.view(), decoded.view());
    EXPECT_TRUE(same_bytes(decoded.host(), values));
  }
}

TEST_F(ManyTiles, Statistics) {
  const Tensor x = hard_tensor({40009}, kType, 6);
  const OnDevice there(x);
  const OnDevice workspace(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  const OnDevice out(DType::kU8, {sizeof(TensorMoments)});
  cuda::tensor_stats(there.view(), MomentOrder::kFourth, workspace.view(), out.view());
  TensorMoments moments;
  std::memcpy(&moments, out.host().view().data(), sizeof moments);
  const TensorMoments cpu = tensor_stats(x, MomentOrder::kFourth);
  EXPECT_EQ(moments.numel, cpu.numel);
  EXPECT_EQ(moments.nonzero, cpu.nonzero);
  EXPECT_NEAR(moments.m2, cpu.m2, 0x1p-28 * cpu.m2);
  EXPECT_NEAR(moments.m4, cpu.m4, 0x1p-28 * cpu.m4);
  const OnDevice error_out(DType::kU8, {sizeof(QuantizationError)});
  cuda::quantization_error_of_cast(there.view(), DType::kE4M3, OnDevice(scalar(2.0F)).view(),
                                   workspace.view(), error_out.view());
  QuantizationError error;
  std::memcpy(&error, error_out.host().view().data(), sizeof error);
  const QuantizationError cpu_error = quantization_error_of_cast(x, DType::kE4M3, 2.0F);
  EXPECT_EQ(error.numel, cpu_error.numel);
  EXPECT_EQ(error.underflows, cpu_error.underflows);
  EXPECT_EQ(error.saturated, cpu_error.saturated);
  EXPECT_NEAR(error.error_squares, cpu_error.error_squares, 0x1p-40 * cpu_error.error_squares);
}

TEST_F(ManyTiles, StatisticsThatAreAddedToASlot) {
  const OnDevice there(hard_tensor({40009}, kType, 6));
  const OnDevice workspace(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  const OnDevice due(Tensor::of<std::uint32_t>({1}, {1}));
  const OnDevice iteration(Tensor::of<std::int64_t>({5}, {1}));
  const OnDevice scale(scalar(2.0F));
  const OnDevice scale_inv(scalar(0.5F));
  const auto add_twice = [&](std::size_t bytes, const auto& add) {
    const OnDevice memory(Tensor(DType::kU8, {static_cast<std::int64_t>(bytes)}));
    const ResultSlot slot{.memory = memory.view(),
                          .workspace = workspace.view(),
                          .due = due.view(),
                          .iteration = iteration.view()};
    add(slot);
    add(slot);
    AccumulatedHeader header;
    std::memcpy(&header, memory.host().view().data(), sizeof header);
    EXPECT_EQ(header.runs, 2U);
    EXPECT_EQ(header.iteration, 5);
  };
  add_twice(sizeof(Accumulated<TensorMoments>), [&](const ResultSlot& slot) {
    cuda::add_tensor_stats(there.view(), MomentOrder::kFourth, slot);
  });
  add_twice(sizeof(Accumulated<ScaledError>), [&](const ResultSlot& slot) {
    cuda::add_quantization_error({.x = there.view(), .scale = scale.view(), .scale_inv = scale_inv.view()},
                                 slot);
  });
  add_twice(sizeof(Accumulated<std::uint32_t>),
            [&](const ResultSlot& slot) { cuda::add_amax(there.view(), slot); });
}

}  // namespace
}  // namespace amaxscope::test

// Scales in the order of cuBLASLt, against the formula of TransformerEngine's mxfp8/swizzle.cuh, byte by
// byte.
#include "kernels/cuda/gemm_scales.hpp"

#include <bit>

#include "core/error.hpp"
#include "kernels/block_scale.hpp"
#include "tests/kernels/cuda/on_device.hpp"
#include "tests/kernels/cuda/tiled_scales.hpp"

namespace amaxscope::test {
namespace {

struct Case {
  BlockLayout layout;
  std::int64_t rows;
  std::int64_t cols;
  int past;
};

TEST_F(CudaKernels, ScalesInTiles) {
  std::vector<Case> cases;
  for (const bool columnwise : {false, true}) {
    for (const bool square : {false, true}) {
      for (const int past : {0, 1}) {
        for (const auto& [rows, cols] : {std::pair{32, 32}, {96, 160}, {160, 544}, {288, 1056}}) {
          cases.push_back({mxfp8_layout(DType::kE4M3, columnwise, square), rows, cols, past});
          cases.push_back({nvfp4_layout(columnwise, square), rows, cols, past});
        }
        cases.push_back({nvfp4_layout(columnwise, square), 16, 48, past});
      }
    }
  }
  for (const Case& c : cases) {
    const OnDevice codes(c.layout.format, c.layout.codes_shape(c.rows, c.cols));
    const Tensor host = numbered_scales(c.layout, c.rows, c.cols);
    const OnDevice scales(host.view(), c.past);
    const BlockScaledView view{
        .codes = codes.view(), .scales = scales.view(), .layout = c.layout, .tensor_scale = {}};
    const Tensor expected = tiled(c.layout, host, c.rows, c.cols);
    ASSERT_EQ(cuda::tiled_scales_bytes(view), expected.numel());
    const OnDevice out(DType::kU8, expected.shape());
    cuda::tile_scales(view, out.view());
    EXPECT_TRUE(same_bytes(out.host(), expected)) << to_string(c.layout.format) << ' ' << c.rows << " x "
                                                  << c.cols << (c.layout.scale_rows > 1 ? " columnwise" : "");
  }
}

TEST_F(CudaKernels, TheFactorOfAProductOfTwoTensors) {
  const OnDevice codes(DType::kE2M1, {16, 32});
  const OnDevice scales(DType::kE4M3, {128, 4});
  const OnDevice amaxes(Tensor::of<std::uint32_t>({0x40490FDBU, 0x3EAAAAABU}, {2}).view());  // pi, 1 / 3
  BlockScaledView a{.codes = codes.view(),
                    .scales = scales.view(),
                    .layout = nvfp4_layout(false, false),
                    .tensor_scale = TensorScale{.amax = 0.0F, .factor = 0x1.872p-12F}};
  BlockScaledView b = a;
  a.device_amax = amaxes.view().slice(0, 1);
  b.device_amax = amaxes.view().slice(1, 1);
  b.tensor_scale->factor = 0x1.555556p-11F;
  const OnDevice out(DType::kF32, {2});
  cuda::product_scale(a, b, 0.25F, out.view());
  const float first = std::bit_cast<float>(0x40490FDBU) * 0x1.872p-12F;
  const float second = std::bit_cast<float>(0x3EAAAAABU) * 0x1.555556p-11F;
  const Tensor host = out.host();
  EXPECT_EQ(host.values<float>()[0], first * second);
  EXPECT_EQ(host.values<float>()[1], 0.25F);
  a.device_amax.reset();
  EXPECT_THROW(cuda::product_scale(a, b, 0.0F, out.view()), Error);
}

TEST_F(CudaKernels, ScalesOfFp8BlocksAreNotTiled) {
  const BlockLayout layout = fp8_block_layout(DType::kE4M3, false, false);
  const OnDevice codes(layout.format, layout.codes_shape(16, 128));
  const OnDevice scales(layout.scale_format, layout.scales_shape(16, 128));
  EXPECT_THROW(static_cast<void>(cuda::tiled_scales_bytes(
                   {.codes = codes.view(), .scales = scales.view(), .layout = layout, .tensor_scale = {}})),
               Error);
}

}  // namespace
}  // namespace amaxscope::test

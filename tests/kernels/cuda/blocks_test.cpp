// MXFP8, FP8 blocks and NVFP4: device kernels against those of the CPU, and back.
#include "core/error.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cuda/quantize.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/cuda/on_device.hpp"

namespace amaxscope::test {
namespace {

/// Codes and scales of one direction on the device, and those that are expected of it.
struct Direction {
  Direction(const BlockLayout& layout, const Tensor& x, int past)
      : expected(layout, x),
        codes(layout.format, expected.codes.shape(), past),
        scales(layout.scale_format, expected.scales.shape(), past) {}
  [[nodiscard]] BlockOutput output() const { return {codes.view(), scales.view()}; }
  void check(const std::string& what) const {
    EXPECT_TRUE(same_bytes(codes.host(), expected.codes)) << "codes of " << what;
    EXPECT_TRUE(same_bytes(scales.host(), expected.scales)) << "scales of " << what;
  }

  Quantized expected;
  OnDevice codes;
  OnDevice scales;
};

struct Wanted {
  bool rowwise, columnwise;
};
constexpr Wanted kWanted[] = {{true, true}, {true, false}, {false, true}};

/// quantize(x on the CPU, outputs) against quantize_on_device(x there, outputs); layout_of(columnwise).
template <class LayoutOf, class OnCpu, class OnGpu>
void compare(const Tensor& x, int past, const std::string& what, LayoutOf layout_of, OnCpu on_cpu,
             OnGpu on_device) {
  for (const Wanted wanted : kWanted) {
    Direction rowwise(layout_of(false), x, past);
    Direction columnwise(layout_of(true), x, past);
    BlockOutputs expected;
    BlockOutputs actual;
    if (wanted.rowwise) {
      expected.rowwise = rowwise.expected.output();
      actual.rowwise = rowwise.output();
    }
    if (wanted.columnwise) {
      expected.columnwise = columnwise.expected.output();
      actual.columnwise = columnwise.output();
    }
    on_cpu(expected);
    const OnDevice there(x, past);
    on_device(there.view(), actual);
    if (wanted.rowwise) rowwise.check("rowwise " + what);
    if (wanted.columnwise) columnwise.check("columnwise " + what);
  }
}

std::string name_of(DType type, DType format, const Tensor& x, bool square) {
  return std::string(to_string(type)) + " in " + std::string(to_string(format)) + ' ' + to_string(x.shape()) +
         (square ? " squares" : "");
}

TEST_F(CudaKernels, Mxfp8) {
  for (const DType type : kComputeTypes) {
    for (const DType format : kFp8Formats) {
      for (const Shape& shape : {Shape{0, 32}, {32, 32}, {96, 160}, {32, 288}}) {
        const Tensor x = hard_tensor(shape, type, 3);
        for (const bool square : {false, true}) {
          for (const int past : {0, 1}) {
            compare(
                x, past, name_of(type, format, x, square),
                [&](bool columnwise) { return mxfp8_layout(format, columnwise, square); },
                [&](const BlockOutputs& out) { quantize_mxfp8(x, square, out); },
                [&](const TensorView& there, const BlockOutputs& out) {
                  cuda::quantize_mxfp8(there, square, out);
                });
          }
        }
      }
    }
  }
}

TEST_F(CudaKernels, Fp8Blocks) {
  const Fp8BlockOptions all_options[] = {
      {}, {.power_of_two = false}, {.power_of_two = false, .epsilon = 0.01F}};
  for (const DType type : kComputeTypes) {
    for (const DType format : kFp8Formats) {
      for (const Shape& shape : {Shape{0, 5}, {1, 1}, {128, 128}, {131, 127}, {33, 300}, {260, 136}}) {
        const Tensor x = hard_tensor(shape, type, 4);
        for (const bool square : {false, true}) {
          const Fp8BlockOptions& options = all_options[static_cast<std::size_t>(shape.rows()) % 3];
          const int past = shape.rows() == 260 ? 0 : static_cast<int>(shape.rows() % 2);
          compare(
              x, past, name_of(type, format, x, square),
              [&](bool columnwise) { return fp8_block_layout(format, columnwise, square); },
              [&](const BlockOutputs& out) { quantize_fp8_blocks(x, options, square, out); },
              [&](const TensorView& there, const BlockOutputs& out) {
                cuda::quantize_fp8_blocks(there, options, square, out);
              });
        }
      }
    }
  }
}

std::array<std::uint32_t, 2> device_amaxes(const Tensor& x, bool rotate) {
  const OnDevice out(DType::kU32, {2});
  cuda::nvfp4_amaxes(OnDevice(x).view(), rotate, out.view());
  const Tensor host = out.host();
  return {host.values<std::uint32_t>()[0], host.values<std::uint32_t>()[1]};
}

TEST_F(CudaKernels, Nvfp4Amaxes) {
  for (const DType type : kComputeTypes) {
    for (const Shape& shape : {Shape{0, 16}, {16, 16}, {80, 208}}) {
      // Sums of Inf and of what overflows are NaN on the way, which is left out: the same on both.
      const Tensor x = hard_tensor(shape, type, 8);
      EXPECT_EQ(device_amaxes(x, false), nvfp4_amaxes(x, true, true, false)) << to_string(type);
      EXPECT_EQ(device_amaxes(x, true), nvfp4_amaxes(x, true, true, true)) << to_string(type);
    }
  }
}

/// Every combination that is allowed.
std::vector<Nvfp4Cast> nvfp4_casts() {
  std::vector<Nvfp4Cast> casts(9);
  casts[1].two_dimensional = true;
  casts[2].rotate_columnwise = true;
  casts[3].stochastic = StochasticRounding{0x0123456789ABCDEFULL, 0x7FEDCBA987654321ULL};
  casts[4].stochastic = StochasticRounding{42, 7};
  casts[4].rotate_columnwise = true;
  casts[5].stochastic = StochasticRounding{1, 2};
  casts[5].two_dimensional = true;
  casts[6].four_over_six = FourOverSix::kSquaredError;
  casts[7].four_over_six = FourOverSix::kAbsoluteError;
  casts[7].scale_max = 256.0F;
  casts[8].four_over_six = FourOverSix::kSquaredError;
  casts[8].two_dimensional = true;
  return casts;
}

TEST_F(CudaKernels, Nvfp4) {
  int number = 0;
  for (Nvfp4Cast cast : nvfp4_casts()) {
    for (const DType type : kComputeTypes) {
      for (const Shape& shape : {Shape{0, 16}, {16, 16}, {64, 64}, {80, 208}}) {
        for (const bool tame : {false, true}) {
          const Tensor x = tame ? converted(sample_tensor(shape, 9), type) : hard_tensor(shape, type, 10);
          const auto amaxes = nvfp4_amaxes(x, true, true, cast.rotate_columnwise);
          cast.rowwise_amax = std::bit_cast<float>(amaxes[0]);
          cast.columnwise_amax = std::bit_cast<float>(amaxes[1]);
          const OnDevice on_device(Tensor::of<std::uint32_t>({amaxes[0], amaxes[1]}, {2}));
          compare(
              x, tame ? 1 : 0, "cast " + std::to_string(number) + ' ' + name_of(type, DType::kE2M1, x, tame),
              [&](bool columnwise) { return nvfp4_layout(columnwise, cast.two_dimensional); },
              [&](const BlockOutputs& out) { quantize_nvfp4(x, cast, out); },
              [&](const TensorView& there, const BlockOutputs& out) {
                cuda::quantize_nvfp4(there, cast, on_device.view(), out);
              });
        }
      }
    }
    ++number;
  }
}

/// A view of host memory, and of the same codes on the device.
void expect_same_values(const Quantized& quantized, const std::string& what) {
  const OnDevice codes(quantized.codes);
  const OnDevice scales(quantized.scales);
  BlockScaledView view = quantized.view();
  const std::int64_t rows = view.rows();
  const std::int64_t cols = view.cols();
  std::optional<OnDevice> amax;
  if (view.tensor_scale) amax.emplace(Tensor::of<std::uint32_t>({bits_of(view.tensor_scale->amax)}, {1}));
  for (const DType type : kComputeTypes) {
    Tensor expected(type, {rows, cols});
    dequantize_blocks(view, expected);
    for (const int past : {0, 1}) {
      const OnDevice out(type, {rows, cols}, past);
      BlockScaledView there = view;
      there.codes = codes.view();
      there.scales = scales.view();
      cuda::dequantize_blocks(there, amax ? std::optional<TensorView>(amax->view()) : std::nullopt,
                              out.view());
      EXPECT_TRUE(same_bytes(out.host(), expected)) << what << " to " << to_string(type);
    }
  }
}

TEST_F(CudaKernels, DequantizesBlocks) {
  for (const bool columnwise : {false, true}) {
    for (const bool square : {false, true}) {
      const std::string what =
          std::string(columnwise ? "columnwise" : "rowwise") + (square ? " squares" : "");
      const auto outputs = [&](Quantized& quantized) {
        BlockOutputs out;
        (columnwise ? out.columnwise : out.rowwise) = quantized.output();
        return out;
      };
      for (const DType format : kFp8Formats) {
        const Tensor x = hard_tensor({96, 160}, DType::kF32, 21);
        Quantized mx(mxfp8_layout(format, columnwise, square), x);
        quantize_mxfp8(x, square, outputs(mx));
        expect_same_values(mx, "mxfp8 " + what);
        const Tensor odd = hard_tensor({131, 77}, DType::kBF16, 22);
        Quantized blocks(fp8_block_layout(format, columnwise, square), odd);
        quantize_fp8_blocks(odd, {.power_of_two = false}, square, outputs(blocks));
        expect_same_values(blocks, "fp8 blocks " + what);
      }
      for (const bool rotate : {false, true}) {
        if (rotate && (square || !columnwise)) continue;
        const Tensor x = converted(sample_tensor({80, 208}, 23), DType::kBF16);
        const auto amaxes = nvfp4_amaxes(x, true, true, rotate);
        Nvfp4Cast cast{.two_dimensional = square, .rotate_columnwise = rotate};
        cast.rowwise_amax = std::bit_cast<float>(amaxes[0]);
        cast.columnwise_amax = std::bit_cast<float>(amaxes[1]);
        Quantized fp4(nvfp4_layout(columnwise, square), x);
        quantize_nvfp4(x, cast, outputs(fp4));
        fp4.tensor_scale =
            nvfp4_tensor_scale(columnwise ? cast.columnwise_amax : cast.rowwise_amax, cast.scale_max);
        fp4.rotated = rotate;
        expect_same_values(fp4, "nvfp4 " + what + (rotate ? " rotated" : ""));
      }
    }
  }
}

TEST_F(CudaKernels, BlocksThatDoNotFitAreRefused) {
  const OnDevice x(sample_tensor({32, 64}, 1));
  const OnDevice odd(sample_tensor({33, 64}, 1));
  const OnDevice codes(DType::kE4M3, {32, 64});
  const OnDevice scales(DType::kE8M0, {128, 4});
  const OnDevice wrong_scales(DType::kE8M0, {32, 2});
  EXPECT_THROW(cuda::quantize_mxfp8(x.view(), false, {}), Error);
  EXPECT_THROW(cuda::quantize_mxfp8(odd.view(), false, {.rowwise = BlockOutput{codes.view(), scales.view()}}),
               Error);
  EXPECT_THROW(
      cuda::quantize_mxfp8(x.view(), false, {.rowwise = BlockOutput{codes.view(), wrong_scales.view()}}),
      Error);
  Nvfp4Cast cast{.two_dimensional = true, .rotate_columnwise = true};
  const OnDevice amaxes(DType::kU32, {2});
  const OnDevice fp4(DType::kE2M1, {32, 64});
  const OnDevice fp4_scales(DType::kE4M3, {128, 4});
  EXPECT_THROW(cuda::quantize_nvfp4(x.view(), cast, amaxes.view(),
                                    {.rowwise = BlockOutput{fp4.view(), fp4_scales.view()}}),
               Error);
}

}  // namespace
}  // namespace amaxscope::test

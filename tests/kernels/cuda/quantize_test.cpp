// amax, scale, cast, cast and transpose, dequantize of one scale: device kernels against those of the CPU.
#include "kernels/cuda/quantize.hpp"

#include "core/error.hpp"
#include "kernels/amax.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/cuda/on_device.hpp"

namespace amaxscope::test {
namespace {

/// Nothing, less than a pack, around packs and warps, primes, and one that keeps several loads in flight in
/// every block.
constexpr std::int64_t kSizes[] = {0, 1, 7, 8, 31, 33, 127, 1009, 4099, 70001};

std::uint32_t device_amax(const TensorView& x, std::uint32_t before, bool accumulate) {
  const Tensor initial = Tensor::of<std::uint32_t>({before}, {1});
  OnDevice out(initial);
  cuda::amax(x, out.view(), accumulate);
  return out.host().values<std::uint32_t>()[0];
}

TEST_F(CudaKernels, AmaxIsThatOfTheCpu) {
  for (const DType type : kComputeTypes) {
    for (const std::int64_t size : kSizes) {
      const Tensor x = hard_tensor({size}, type, static_cast<unsigned>(size));
      for (const int past : {0, 1, 3}) {
        const OnDevice on_device(x, past);
        EXPECT_EQ(device_amax(on_device.view(), 0xFFFFFFFFU, false), amax_bits(x))
            << to_string(type) << ' ' << size;
      }
    }
  }
}

TEST_F(CudaKernels, AmaxOfPaddedRowsReadsNoPadding) {
  for (const DType type : kComputeTypes) {
    const Tensor x = hard_tensor({37, 45}, type, 5);
    // The padding is 0xFF: NaN, but as far as amax goes so would be a wrong element. Its first byte is
    // another matter:
    for (const std::int64_t stride : {46, 53, 64}) {
      const OnDevice on_device(x, 0, stride);
      EXPECT_EQ(device_amax(on_device.padded_view(), 0, false), amax_bits(x))
          << to_string(type) << ' ' << stride;
    }
  }
}

TEST_F(CudaKernels, AmaxKnowsSpecialValuesAndAccumulates) {
  const Tensor nan = Tensor::of<float>({kNaN, -kNaN, kNaN}, {3});
  EXPECT_EQ(device_amax(OnDevice(nan).view(), 7, false), 0U);
  EXPECT_EQ(device_amax(OnDevice(nan).view(), 7, true), 7U);
  const Tensor inf = Tensor::of<float>({1.0F, -kInf, kNaN, 3.0F}, {4});
  EXPECT_EQ(device_amax(OnDevice(inf).view(), 0, false), 0x7F800000U);
  const Tensor small = Tensor::of<float>({-kDenormal, -0.0F}, {2});
  EXPECT_EQ(device_amax(OnDevice(small).view(), 0, false), 1U);
  EXPECT_EQ(device_amax(OnDevice(small).view(), bits_of(2.5F), true), bits_of(2.5F));
}

TEST_F(CudaKernels, ScaleIsMadeOfTheAmaxWhereItLies) {
  std::vector<std::uint32_t> amaxes = {0,           1,           0x00400000U,    0x007FFFFFU,
                                       0x7F7FFFFFU, 0x7F800000U, bits_of(448.0F)};
  for (std::uint32_t bits = 1; bits < 0x7F800000U; bits += 0x01F4A7C3U) amaxes.push_back(bits);
  std::vector<ScaleOptions> all_options(5);
  all_options[1].max_value = 57344.0F;
  all_options[2].power_of_two = true;
  all_options[3].epsilon = 0.001F;
  all_options[4].value_for_infinity = 65504.0F;
  for (const ScaleOptions& options : all_options) {
    for (const std::uint32_t amax : amaxes) {
      const OnDevice in(Tensor::of<std::uint32_t>({amax}, {1}));
      const OnDevice scale(DType::kF32, {1});
      const OnDevice inverse(DType::kF32, {1});
      cuda::scale_of_amax(in.view(), options, scale.view(), inverse.view());
      const float expected = scale_from_amax(amax, options).scale;
      ASSERT_EQ(bits_of(scale.host().values<float>()[0]), bits_of(expected)) << amax;
      ASSERT_EQ(bits_of(inverse.host().values<float>()[0]), bits_of(scale_inverse(expected))) << amax;
    }
  }
}

TEST_F(CudaKernels, CastGivesTheCodesOfTheCpu) {
  const OnDevice scale(scalar(3.7F));
  for (const DType type : kComputeTypes) {
    for (const DType format : kFp8Formats) {
      for (const std::int64_t size : kSizes) {
        const Tensor x = hard_tensor({size}, type, static_cast<unsigned>(size) + 1);
        Tensor expected(format, x.shape());
        cast_to_fp8(x, scalar(3.7F), expected);
        // Together, one of them, and both but differently past an aligned address.
        for (const auto& [past, codes_past] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}, {3, 5}}) {
          const OnDevice on_device(x, past);
          const OnDevice codes(format, x.shape(), codes_past);
          cuda::cast_to_fp8(on_device.view(), scale.view(), codes.view());
          EXPECT_TRUE(same_bytes(codes.host(), expected)) << to_string(type) << ' ' << size << ' ' << past;
        }
      }
    }
  }
}

TEST_F(CudaKernels, CastOfEveryHalf) {
  std::vector<BF16> values(65536);
  for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<std::uint16_t>(i);
  std::vector<F16> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  const Tensor bf16 = Tensor::of<BF16>(std::span<const BF16>(values), {65536});
  const Tensor f16 = Tensor::of<F16>(std::span<const F16>(halves), {65536});
  for (const Tensor* x : {&bf16, &f16}) {
    for (const DType format : kFp8Formats) {
      for (const float factor : {1.0F, 0.37F}) {
        Tensor expected(format, x->shape());
        cast_to_fp8(*x, scalar(factor), expected);
        const OnDevice codes(format, x->shape());
        cuda::cast_to_fp8(OnDevice(*x).view(), OnDevice(scalar(factor)).view(), codes.view());
        EXPECT_TRUE(same_bytes(codes.host(), expected)) << to_string(format);
      }
    }
  }
}

TEST_F(CudaKernels, CastAndTransposeGivesBoth) {
  const OnDevice scale(scalar(0.9F));
  for (const DType type : kComputeTypes) {
    for (const DType format : kFp8Formats) {
      for (const Shape& shape : {Shape{0, 5},
                                 {1, 1},
                                 {1, 300},
                                 {300, 1},
                                 {31, 33},
                                 {128, 128},
                                 {127, 131},
                                 {132, 260},
                                 {256, 264}}) {
        const Tensor x = hard_tensor(shape, type, 11);
        Tensor expected(format, shape);
        Tensor expected_transposed(format, {shape.cols(), shape.rows()});
        cast_transpose_to_fp8(x, scalar(0.9F), expected, expected_transposed);
        for (const int past : {0, 1}) {
          const OnDevice codes(format, shape, past);
          const OnDevice transposed(format, {shape.cols(), shape.rows()}, past);
          cuda::cast_transpose_to_fp8(OnDevice(x, past).view(), scale.view(), codes.view(),
                                      transposed.view());
          EXPECT_TRUE(same_bytes(codes.host(), expected)) << to_string(type) << ' ' << to_string(shape);
          EXPECT_TRUE(same_bytes(transposed.host(), expected_transposed))
              << to_string(type) << ' ' << to_string(shape);
        }
      }
    }
  }
}

TEST_F(CudaKernels, DequantizeIsThatOfTheCpu) {
  for (const DType format : kFp8Formats) {
    for (const DType type : kComputeTypes) {
      for (const std::int64_t size : kSizes) {
        Tensor codes(format, {size});
        auto bytes = codes.values<std::uint8_t>();
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + 11);
        Tensor expected(type, {size});
        dequantize_fp8(codes, scalar(0.3F), expected);
        for (const auto& [past, codes_past] : {std::pair{0, 0}, {1, 1}, {1, 2}}) {
          const OnDevice out(type, {size}, past);
          cuda::dequantize_fp8(OnDevice(codes, codes_past).view(), OnDevice(scalar(0.3F)).view(), out.view());
          EXPECT_TRUE(same_bytes(out.host(), expected))
              << to_string(format) << ' ' << to_string(type) << ' ' << size;
        }
      }
    }
  }
}

TEST_F(CudaKernels, ArgumentsThatDoNotFitAreRefused) {
  const OnDevice x(sample_tensor({4, 32}, 1));
  const OnDevice padded(sample_tensor({4, 30}, 1), 0, 32);
  const OnDevice scale(scalar(1.0F));
  const OnDevice codes(DType::kE4M3, {4, 32});
  Tensor host(DType::kE4M3, {4, 32});
  EXPECT_THROW(cuda::cast_to_fp8(x.view(), scale.view(), host), Error);
  EXPECT_THROW(cuda::cast_to_fp8(padded.padded_view(), scale.view(), codes.view()), Error);
  EXPECT_THROW(cuda::cast_to_fp8(codes.view(), scale.view(), codes.view()), Error);
  EXPECT_THROW(cuda::cast_to_fp8(x.view(), x.view(), codes.view()), Error);
  EXPECT_THROW(cuda::cast_to_fp8(x.view(), scale.view(), x.view()), Error);
  EXPECT_THROW(cuda::amax(x.view(), scale.view()), Error);
  int other_stream = 0;
  const MutableTensorView elsewhere(codes.view().data(), DType::kE4M3, {4, 32}, kDevice, {&other_stream});
  EXPECT_THROW(cuda::cast_to_fp8(x.view(), scale.view(), elsewhere), Error);
}

TEST_F(CudaKernels, TransposeIsThatOfTheCpu) {
  for (const DType type : {DType::kE4M3, DType::kBF16, DType::kF32}) {
    for (const Shape shape :
         {Shape{0, 5}, Shape{1, 1}, Shape{1, 300}, Shape{37, 65}, Shape{64, 128}, Shape{257, 80}}) {
      Tensor x(type, shape);
      auto* const bytes = static_cast<unsigned char*>(x.mutable_view().data());
      for (std::size_t i = 0; i < x.bytes(); ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
      Tensor expected(type, {shape.cols(), shape.rows()});
      transpose(x, expected);
      for (const int past : {0, 1}) {
        const OnDevice on_device(x, past);
        const OnDevice turned(type, {shape.cols(), shape.rows()}, past);
        cuda::transpose(on_device.view(), turned.view());
        const Tensor actual = turned.host();
        EXPECT_TRUE(x.bytes() == 0 ||
                    std::memcmp(actual.view().data(), expected.view().data(), x.bytes()) == 0)
            << to_string(type) << ' ' << to_string(shape) << " past " << past;
      }
    }
  }
}

TEST_F(CudaKernels, ConvertIsThatOfTheCpu) {
  for (const DType from : kComputeTypes) {
    for (const DType to : kComputeTypes) {
      if (from == to) continue;
      for (const std::int64_t size : kSizes) {
        const Tensor x = hard_tensor({size}, from, static_cast<unsigned>(size) + 3);
        Tensor expected(to, x.shape());
        convert(x, expected);
        for (const int past : {0, 1}) {
          const OnDevice on_device(x, past);
          const OnDevice converted_there(to, x.shape(), 2 * past);
          cuda::convert(on_device.view(), converted_there.view());
          EXPECT_TRUE(same_bytes(converted_there.host(), expected))
              << to_string(from) << " to " << to_string(to) << ' ' << size << " past " << past;
        }
      }
    }
  }
}

}  // namespace
}  // namespace amaxscope::test

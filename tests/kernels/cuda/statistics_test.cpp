// Statistics on a device: counts and extremes as on the CPU, sums within the bounds of docs/cuda.md of sums
// that the test makes itself in long double.
#include "kernels/cuda/statistics.hpp"

#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "tests/kernels/cuda/on_device.hpp"

namespace amaxscope::test {
namespace {

constexpr long double kBound = 0x1p-40L;        // of sums, against the sum of the magnitudes of what is added
constexpr long double kMomentBound = 0x1p-28L;  // of moments, relative

template <class Result>
Result read(const OnDevice& out) {
  const Tensor host = out.host();
  Result result;
  std::memcpy(&result, host.view().data(), sizeof result);
  return result;
}

MutableTensorView bytes_of(const OnDevice& memory) { return memory.view(); }

TensorMoments device_stats(const TensorView& x, MomentOrder order) {
  const OnDevice workspace(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  const OnDevice out(DType::kU8, {sizeof(TensorMoments)});
  cuda::tensor_stats(x, order, bytes_of(workspace), bytes_of(out));
  return read<TensorMoments>(out);
}

std::vector<long double> finite_values(const Tensor& x) {
  const Tensor wide = converted(x, DType::kF32);
  std::vector<long double> values;
  for (const float value : wide.values<float>()) {
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

void expect_moments(const TensorMoments& actual, const Tensor& x, bool fourth) {
  const TensorMoments cpu = tensor_stats(x, MomentOrder::kFourth);
  EXPECT_EQ(actual.numel, cpu.numel);
  EXPECT_EQ(actual.nan, cpu.nan);
  EXPECT_EQ(actual.inf, cpu.inf);
  EXPECT_EQ(actual.nonzero, cpu.nonzero);
  EXPECT_EQ(bits_of(actual.min), bits_of(cpu.min));
  EXPECT_EQ(bits_of(actual.max), bits_of(cpu.max));
  EXPECT_EQ(bits_of(actual.min_finite), bits_of(cpu.min_finite));
  EXPECT_EQ(bits_of(actual.max_finite), bits_of(cpu.max_finite));
  EXPECT_EQ(bits_of(actual.amax_finite), bits_of(cpu.amax_finite));
  EXPECT_EQ(bits_of(actual.amin_nonzero), bits_of(cpu.amin_nonzero));
  const std::vector<long double> values = finite_values(x);
  long double sum = 0;
  long double l1 = 0;
  long double squares = 0;
  for (const long double value : values) {
    sum += value;
    l1 += std::abs(value);
    squares += value * value;
  }
  const auto n = static_cast<long double>(values.size());
  const long double mean = values.empty() ? 0 : sum / n;
  long double m2 = 0;
  long double m3 = 0;
  long double m3_magnitudes = 0;
  long double m4 = 0;
  for (const long double value : values) {
    const long double d = value - mean;
    m2 += d * d;
    m3 += d * d * d;
    m3_magnitudes += std::abs(d * d * d);
    m4 += d * d * d * d;
  }
  const auto near = [](double a, long double b, long double tolerance, const char* what) {
    EXPECT_LE(std::abs(static_cast<long double>(a) - b), tolerance)
        << what << ": " << a << ", exact " << double(b);
  };
  near(actual.sum, sum, kBound * l1, "sum");
  near(actual.l1, l1, kBound * l1, "l1");
  near(actual.sum_squares, squares, kBound * squares, "sum_squares");
  near(actual.mean, mean, values.empty() ? 0 : kBound * l1 / n, "mean");
  near(actual.m2, m2, kMomentBound * m2, "m2");
  if (fourth) {
    near(actual.m3, m3, kMomentBound * m3_magnitudes, "m3");
    near(actual.m4, m4, kMomentBound * m4, "m4");
  }
}

TEST_F(CudaKernels, StatisticsOfEverySize) {
  for (const DType type : kComputeTypes) {
    for (const std::int64_t size : {0, 1, 2, 31, 33, 127, 1009, 70001}) {
      for (const int past : {0, 1}) {
        const Tensor x = hard_tensor({size}, type, static_cast<unsigned>(size) + 3);
        SCOPED_TRACE(std::string(to_string(type)) + ' ' + std::to_string(size));
        expect_moments(device_stats(OnDevice(x, past).view(), MomentOrder::kSecond), x, false);
        expect_moments(device_stats(OnDevice(x, past).view(), MomentOrder::kFourth), x, true);
      }
    }
  }
}

TEST_F(CudaKernels, StatisticsOfPaddedRows) {
  for (const DType type : kComputeTypes) {
    const Tensor x = hard_tensor({37, 45}, type, 6);
    const OnDevice padded(x, 0, 53);
    expect_moments(device_stats(padded.padded_view(), MomentOrder::kFourth), x, true);
  }
}

TEST_F(CudaKernels, StatisticsOfASmallSpreadAboutALargeMean) {
  std::vector<float> values(5003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e6F + static_cast<float>(i % 7) * 0.25F;
  values[100] = -3e7F;  // and an outlier, which some thread sees first
  const Tensor x = Tensor::of<float>(std::span<const float>(values), {5003});
  expect_moments(device_stats(OnDevice(x).view(), MomentOrder::kFourth), x, true);
}

TEST_F(CudaKernels, StatisticsOfNothingFinite) {
  for (const std::initializer_list<float>& values :
       {std::initializer_list<float>{kNaN}, {kInf}, {-kInf}, {kInf, -kInf, kNaN}, {kNaN, -kInf}}) {
    const Tensor x = Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
    expect_moments(device_stats(OnDevice(x).view(), MomentOrder::kFourth), x, true);
  }
}

void expect_error(const QuantizationError& actual, const QuantizationError& cpu) {
  EXPECT_EQ(actual.numel, cpu.numel);
  EXPECT_EQ(actual.nan, cpu.nan);
  EXPECT_EQ(actual.compared, cpu.compared);
  EXPECT_EQ(actual.underflows, cpu.underflows);
  EXPECT_EQ(actual.overflows, cpu.overflows);
  EXPECT_EQ(actual.saturated, cpu.saturated);
  EXPECT_EQ(actual.max_error, cpu.max_error);
  const auto near = [](double a, double b, double magnitude, const char* what) {
    EXPECT_LE(std::abs(a - b), static_cast<double>(kBound) * magnitude)
        << what << ": " << a << ", on the CPU " << b;
  };
  near(actual.error_squares, cpu.error_squares, cpu.error_squares, "error_squares");
  near(actual.signal_squares, cpu.signal_squares, cpu.signal_squares, "signal_squares");
  near(actual.quantized_squares, cpu.quantized_squares, cpu.quantized_squares, "quantized_squares");
  // Code and original have one sign: every product is positive.
  near(actual.product, cpu.product, cpu.product, "product");
  near(actual.saturated_squares, cpu.saturated_squares, cpu.saturated_squares, "saturated_squares");
  near(actual.flushed_squares, cpu.flushed_squares, cpu.flushed_squares, "flushed_squares");
}

TEST_F(CudaKernels, QuantizationErrorOfCodesAndOfTheCast) {
  const OnDevice workspace(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  const OnDevice out(DType::kU8, {sizeof(QuantizationError)});
  for (const DType type : kComputeTypes) {
    for (const DType format : kFp8Formats) {
      for (const std::int64_t size : {0, 1, 31, 33, 1009, 40009}) {
        for (const float scale : {1.0F, 300.0F}) {
          const Tensor x = hard_tensor({size}, type, static_cast<unsigned>(size) + 4);
          Tensor codes(format, x.shape());
          cast_to_fp8(x, scalar(scale), codes);
          SCOPED_TRACE(std::string(to_string(type)) + ' ' + std::string(to_string(format)) + ' ' +
                       std::to_string(size));
          const QuantizationError cpu = quantization_error(x, codes, scale, scale_inverse(scale));
          for (const int past : {0, 1}) {
            const OnDevice there(x, past);
            cuda::quantization_error(there.view(), OnDevice(codes).view(), OnDevice(scalar(scale)).view(),
                                     OnDevice(scalar(scale_inverse(scale))).view(), bytes_of(workspace),
                                     bytes_of(out));
            expect_error(read<QuantizationError>(out), cpu);
            cuda::quantization_error_of_cast(there.view(), format, OnDevice(scalar(scale)).view(),
                                             bytes_of(workspace), bytes_of(out));
            expect_error(read<QuantizationError>(out), quantization_error_of_cast(x, format, scale));
          }
        }
      }
    }
  }
}

TEST_F(CudaKernels, QuantizationErrorOfPaddedRows) {
  const OnDevice workspace(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  const OnDevice out(DType::kU8, {sizeof(QuantizationError)});
  const Tensor x = hard_tensor({37, 45}, DType::kBF16, 7);
  Tensor codes(DType::kE4M3, x.shape());
  cast_to_fp8(x, scalar(2.0F), codes);
  cuda::quantization_error(OnDevice(x, 0, 53).padded_view(), OnDevice(codes).view(),
                           OnDevice(scalar(2.0F)).view(), OnDevice(scalar(0.5F)).view(), bytes_of(workspace),
                           bytes_of(out));
  expect_error(read<QuantizationError>(out), quantization_error(x, codes, 2.0F, 0.5F));
}

TEST_F(CudaKernels, ASmallWorkspaceIsRefused) {
  const OnDevice x(sample_tensor({64}, 1));
  const OnDevice small(DType::kU8, {100});
  const OnDevice out(DType::kU8, {sizeof(TensorMoments)});
  EXPECT_THROW(cuda::tensor_stats(x.view(), MomentOrder::kSecond, bytes_of(small), bytes_of(out)), Error);
}

}  // namespace
}  // namespace amaxscope::test

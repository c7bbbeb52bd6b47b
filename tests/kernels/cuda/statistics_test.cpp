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

/// A slot of zeros, and the flags in device memory.
template <class Result>
struct Slot {
  Slot() : memory(Tensor(DType::kU8, {sizeof(Accumulated<Result>)})) {}
  [[nodiscard]] ResultSlot place(bool once = false) const {
    return {.memory = memory.view(), .workspace = workspace.view(), .once = once};
  }
  [[nodiscard]] Accumulated<Result> now() const { return read<Accumulated<Result>>(memory); }

  OnDevice memory;
  OnDevice workspace{DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())}};
};

TEST_F(CudaKernels, MomentsOfSeveralTensorsAreThoseOfAllTheirElements) {
  for (const DType type : kComputeTypes) {
    const Tensor whole = hard_tensor({3 * 1009}, type, 8);
    const Slot<TensorMoments> slot;
    for (const std::int64_t part : {0, 1, 2}) {
      const OnDevice there(whole.view().slice(part * 1009, 1009));
      cuda::add_tensor_stats(there.view(), MomentOrder::kFourth, slot.place());
    }
    const OnDevice empty(DType::kF32, {0});
    cuda::add_tensor_stats(empty.view(), MomentOrder::kFourth, slot.place());
    EXPECT_EQ(slot.now().header.runs, 4U) << "an empty tensor was there, too";
    expect_moments(slot.now().result, whole, true);
  }
}

TEST_F(CudaKernels, ASlotIsAddedToWhenItIsDueAndOnceWhereOnceCounts) {
  const OnDevice x(sample_tensor({1009}, 1));
  const OnDevice other(sample_tensor({33}, 2));
  const OnDevice yes(Tensor::of<std::uint32_t>({1}, {1}));
  const OnDevice no(Tensor::of<std::uint32_t>({0}, {1}));
  const OnDevice iteration(Tensor::of<std::int64_t>({-7}, {1}));
  const Slot<TensorMoments> slot;
  ResultSlot place = slot.place(/*once=*/true);
  place.iteration = iteration.view();
  place.due = no.view();
  cuda::add_tensor_stats(x.view(), MomentOrder::kSecond, place);
  EXPECT_EQ(slot.now().header.runs, 0U);
  EXPECT_EQ(slot.now().header.iteration, 0);
  EXPECT_EQ(slot.now().result.numel, 0U);
  place.due = yes.view();
  cuda::add_tensor_stats(x.view(), MomentOrder::kSecond, place);
  cuda::add_tensor_stats(other.view(), MomentOrder::kSecond, place);
  EXPECT_EQ(slot.now().header.runs, 1U);
  EXPECT_EQ(slot.now().header.iteration, -7);
  EXPECT_EQ(slot.now().result.numel, 1009U);
  place.once = false;
  cuda::add_tensor_stats(other.view(), MomentOrder::kSecond, place);
  EXPECT_EQ(slot.now().result.numel, 1042U);
}

TEST_F(CudaKernels, ErrorsOfSeveralTensorsKeepTheirScales) {
  const Slot<ScaledError> slot;
  QuantizationError expected;
  std::vector<Tensor> tensors;
  tensors.push_back(hard_tensor({40009}, DType::kBF16, 9));
  tensors.push_back(hard_tensor({31}, DType::kBF16, 10));
  tensors.push_back(hard_tensor({33}, DType::kBF16, 11));
  const std::vector<float> scales = {4.0F, 4.0F, 0.5F};
  const OnDevice zero(Tensor::of<std::uint32_t>({0}, {1}));
  const OnDevice fine(Tensor::of<std::uint32_t>({0x3F800000U}, {1}));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    Tensor codes(DType::kE5M2, x.shape());
    cast_to_fp8(x, scalar(scales[i]), codes);
    const OnDevice there(x);
    const OnDevice there_codes(codes);
    const OnDevice scale(scalar(scales[i]));
    const OnDevice scale_inv(scalar(scale_inverse(scales[i])));
    ScaledQuantization what{.x = there.view(),
                            .codes = there_codes.view(),
                            .format = DType::kE5M2,
                            .scale = scale.view(),
                            .scale_inv = scale_inv.view()};
    if (i > 0) what.amax = i == 1 ? zero.view() : fine.view();
    cuda::add_quantization_error(what, slot.place());
    expected += quantization_error(x, codes, scales[i], scale_inverse(scales[i]));
    EXPECT_EQ(slot.now().result.scale_changed, i == 2 ? 1U : 0U);
    EXPECT_EQ(slot.now().result.clamps, i == 0 ? 0U : i == 1 ? 0b10U : 0b11U);
  }
  const ScaledError sum = slot.now().result;
  expect_error(sum.error, expected);
  EXPECT_EQ(sum.first_scale, 4.0F);
  EXPECT_EQ(sum.last_scale, 0.5F);
  EXPECT_EQ(sum.scale_inv_min, 0.25F);
  EXPECT_EQ(sum.scale_inv_max, 2.0F);

  // An empty one changes nothing, its scale neither; without codes it is that of the cast.
  const OnDevice empty(DType::kBF16, {0});
  const OnDevice large(scalar(1024.0F));
  const OnDevice small(scalar(0x1p-10F));
  ScaledQuantization what{
      .x = empty.view(), .format = DType::kE5M2, .scale = large.view(), .scale_inv = small.view()};
  cuda::add_quantization_error(what, slot.place());
  EXPECT_EQ(slot.now().header.runs, 4U);
  EXPECT_EQ(slot.now().result.last_scale, 0.5F);
  const OnDevice again(tensors[1]);
  what.x = again.view();
  cuda::add_quantization_error(what, slot.place());
  expected += quantization_error_of_cast(tensors[1], DType::kE5M2, 1024.0F);
  expect_error(slot.now().result.error, expected);
  EXPECT_EQ(slot.now().result.scale_inv_min, 0x1p-10F);
}

TEST_F(CudaKernels, AmaxesAreAddedToASlot) {
  const Slot<std::uint32_t> slot;
  const OnDevice no(Tensor::of<std::uint32_t>({0}, {1}));
  const OnDevice small(Tensor::of({1.0F, -2.0F}, {2}));
  const OnDevice large(Tensor::of({0.5F, -64.0F, kNaN}, {3}));
  const OnDevice empty(DType::kF32, {0});
  cuda::add_amax(small.view(), slot.place());
  cuda::add_amax(empty.view(), slot.place());
  EXPECT_EQ(slot.now().header.runs, 2U);
  EXPECT_EQ(slot.now().result, bits_of(2.0F));
  ResultSlot place = slot.place();
  place.due = no.view();
  cuda::add_amax(large.view(), place);
  EXPECT_EQ(slot.now().result, bits_of(2.0F));
  cuda::add_amax(large.view(), slot.place());
  EXPECT_EQ(slot.now().result, bits_of(64.0F));
  EXPECT_EQ(slot.now().header.runs, 3U);
}

TEST_F(CudaKernels, ASlotThatIsTooSmallOrFlagsOfAnotherTypeAreRefused) {
  const OnDevice x(sample_tensor({64}, 1));
  const OnDevice small(DType::kU8, {sizeof(TensorMoments)});
  const Slot<TensorMoments> slot;
  ResultSlot place = slot.place();
  place.memory = small.view();
  EXPECT_THROW(cuda::add_tensor_stats(x.view(), MomentOrder::kSecond, place), Error);
  place = slot.place();
  place.due = x.view();
  EXPECT_THROW(cuda::add_tensor_stats(x.view(), MomentOrder::kSecond, place), Error);
}

TEST_F(CudaKernels, ASmallWorkspaceIsRefused) {
  const OnDevice x(sample_tensor({64}, 1));
  const OnDevice small(DType::kU8, {100});
  const OnDevice out(DType::kU8, {sizeof(TensorMoments)});
  EXPECT_THROW(cuda::tensor_stats(x.view(), MomentOrder::kSecond, bytes_of(small), bytes_of(out)), Error);
}

}  // namespace
}  // namespace amaxscope::test

// The device kernels against the two limits of a device: what it copies and what a launch costs. For
// launch/gpu_check, which makes a table of the lines. usage: gpu_kernels [ROWS COLS]
// A line: name, bytes read and written, microseconds, GB/s, per cent of the copy bandwidth; tabs between.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/cuda/cuda_handles.hpp"
#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/quantize.hpp"
#include "kernels/cuda/statistics.hpp"

namespace amaxscope {
namespace {

constexpr int kRounds = 20;

/// An event with a time stamp.
class Clock {
 public:
  Clock() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  ~Clock() { static_cast<void>(cudaEventDestroy(event_)); }
  void record(cudaStream_t stream) const { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  [[nodiscard]] double microseconds_since(const Clock& start) const {
    check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Bench {
 public:
  explicit Bench(cudaStream_t stream) : stream_(stream) {}

  /// The median of rounds, each of one call, after two to warm up.
  [[nodiscard]] double median(const std::function<void()>& call) const {
    std::vector<double> times;
    for (int i = 0; i < kRounds + 2; ++i) {
      const Clock start;
      const Clock end;
      start.record(stream_);
      call();
      end.record(stream_);
      if (i >= 2)
        times.push_back(end.microseconds_since(start));
      else
        static_cast<void>(end.microseconds_since(start));
    }
    std::ranges::nth_element(times, times.begin() + kRounds / 2);
    return times[kRounds / 2];
  }
  void line(const std::string& name, double bytes, const std::function<void()>& call) {
    const double time = median(call);
    const double rate = bytes / time / 1000.0;
    if (copy_rate_ == 0) copy_rate_ = rate;
    fmt::print("{}\t{:.0f}\t{:.1f}\t{:.0f}\t{:.0f}\n", name, bytes, time, rate, 100.0 * rate / copy_rate_);
  }

 private:
  cudaStream_t stream_;
  double copy_rate_ = 0;
};

void run(std::int64_t rows, std::int64_t cols) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  fmt::print("device\t{}\n", properties.name);
  const CudaStream stream = CudaStream::create();
  const auto backend = make_cuda_backend({});
  const Device device = backend->device();
  const Stream where{stream.get(), backend.get()};
  const auto tensor = [&](DType type, Shape shape) { return Tensor(type, shape, device, where); };
  Bench bench(stream.get());

  Tensor x = tensor(DType::kBF16, {rows, cols});
  Tensor copy = tensor(DType::kBF16, {rows, cols});
  backend->zero(x);
  Tensor codes = tensor(DType::kE4M3, {rows, cols});
  Tensor turned = tensor(DType::kE4M3, {cols, rows});
  Tensor amax = tensor(DType::kU32, {1});
  Tensor scales = tensor(DType::kF32, {2});
  Tensor workspace = tensor(DType::kU8, {static_cast<std::int64_t>(cuda::statistics_workspace())});
  Tensor moments = tensor(DType::kU8, {sizeof(TensorMoments)});
  Tensor errors = tensor(DType::kU8, {sizeof(QuantizationError)});
  const MutableTensorView both = scales.mutable_view();
  const MutableTensorView scale = both.slice(0, 1);
  const MutableTensorView scale_inv = both.slice(1, 1);
  const auto elements = static_cast<double>(rows * cols);

  bench.line("copy", 4 * elements, [&] { backend->copy(copy, x); });
  cuda::amax(x, amax);
  bench.line("launch of a small kernel", 16, [&] { cuda::scale_of_amax(amax, {}, scale, scale_inv); });
  bench.line("amax", 2 * elements, [&] { cuda::amax(x, amax); });
  bench.line("cast", 3 * elements, [&] { cuda::cast_to_fp8(x, scale, codes); });
  bench.line("cast and transpose", 4 * elements,
             [&] { cuda::cast_transpose_to_fp8(x, scale, codes, turned); });
  bench.line("amax, scale, cast", 5 * elements, [&] {
    cuda::amax(x, amax);
    cuda::scale_of_amax(amax, {}, scale, scale_inv);
    cuda::cast_to_fp8(x, scale, codes);
  });
  bench.line("transpose of codes", 2 * elements, [&] { cuda::transpose(codes, turned); });
  bench.line("dequantize", 3 * elements, [&] { cuda::dequantize_fp8(codes, scale_inv, copy); });
  const auto blocks = [&](const BlockLayout& rowwise, const BlockLayout& columnwise) {
    const auto side = [&](const BlockLayout& layout) {
      return std::pair(tensor(layout.format, layout.codes_shape(rows, cols)),
                       tensor(layout.scale_format, layout.scales_shape(rows, cols)));
    };
    return std::pair(side(rowwise), side(columnwise));
  };
  const auto outputs = [](auto& sides) {
    return BlockOutputs{BlockOutput{sides.first.first, sides.first.second},
                        BlockOutput{sides.second.first, sides.second.second}};
  };
  {
    auto sides = blocks(mxfp8_layout(DType::kE4M3, false, false), mxfp8_layout(DType::kE4M3, true, false));
    bench.line("MXFP8, both directions", 4.0625 * elements,
               [&] { cuda::quantize_mxfp8(x, false, outputs(sides)); });
  }
  {
    auto sides =
        blocks(fp8_block_layout(DType::kE4M3, false, false), fp8_block_layout(DType::kE4M3, true, false));
    bench.line("FP8 blocks, both directions", 4.0625 * elements,
               [&] { cuda::quantize_fp8_blocks(x, {}, false, outputs(sides)); });
  }
  {
    auto sides = blocks(nvfp4_layout(false, false), nvfp4_layout(true, false));
    Tensor amaxes = tensor(DType::kU32, {2});
    cuda::nvfp4_amaxes(x, true, amaxes);
    Nvfp4Cast cast;
    cast.rotate_columnwise = true;
    bench.line("NVFP4, both directions", 3.125 * elements,
               [&] { cuda::quantize_nvfp4(x, cast, amaxes, outputs(sides)); });
  }
  bench.line("statistics", 2 * elements,
             [&] { cuda::tensor_stats(x, MomentOrder::kSecond, workspace, moments); });
  bench.line("statistics to the fourth moment", 2 * elements,
             [&] { cuda::tensor_stats(x, MomentOrder::kFourth, workspace, moments); });
  bench.line("quantization error", 3 * elements,
             [&] { cuda::quantization_error(x, codes, scale, scale_inv, workspace, errors); });
}

}  // namespace
}  // namespace amaxscope

int main(int count, char** arguments) {
  constexpr int kSkipped = 77;
  const amaxscope::CudaPresence presence = amaxscope::cuda_presence();
  if (presence.devices == 0) {
    fmt::print("SKIPPED: no CUDA device: {}\n", presence.why_none);
    return kSkipped;
  }
  try {
    const auto extent = [&](int index, std::int64_t otherwise) {
      return count > index ? std::strtoll(arguments[index], nullptr, 10) : otherwise;
    };
    amaxscope::run(extent(1, 8192), extent(2, 8192));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_kernels: {}\n", error.what());
    return 1;
  }
  return 0;
}

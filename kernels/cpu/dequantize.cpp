#include "kernels/dequantize.hpp"

#include <algorithm>
#include <vector>

#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "dequantize_fp8";
  if (DeviceKernels* device = device_kernels(kOperation, codes))
    return device->dequantize_fp8(codes, scale_inv, out);
  cpu::require_contiguous(kOperation, "codes", codes);
  cpu::require_shape(kOperation, "out", out, codes.shape());
  const float factor = cpu::read_scalar(kOperation, "scale_inv", scale_inv);
  AMAXSCOPE_CHECK(is_fp8(codes.dtype()), ErrorCode::kTensor, "{}: codes is {}; allowed are e4m3 and e5m2",
                  kOperation, to_string(codes.dtype()));
  const auto count = static_cast<std::size_t>(codes.numel());
  cpu::with_compute_type(kOperation, "out", out, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().format(codes.dtype()).decode;
    const auto* in = cpu::data_of<std::uint8_t>(codes);
    T* values = cpu::data_of<T>(out);
    const cpu::Store store = cpu::store_for(count * sizeof(T));
    cpu::over_elements(codes, count, std::size_t{1} << 14,
                       [&](std::size_t, std::size_t first, std::size_t length) {
                         loop(in + first, length, factor, values + first, store);
                       });
  });
}

void dequantize_blocks(const BlockScaledView& codes, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "dequantize_blocks";
  if (DeviceKernels* device = device_kernels(kOperation, codes.codes))
    return device->dequantize_blocks(codes, out);
  require_valid(codes, "codes");
  cpu::require_contiguous(kOperation, "out", out);
  const std::int64_t rows = codes.rows();
  const std::int64_t cols = codes.cols();
  AMAXSCOPE_CHECK(out.numel() == rows * cols && (out.numel() == 0 || out.cols() == cols), ErrorCode::kTensor,
                  "{}: out has shape {}, the codes stand for {} x {}", kOperation, to_string(out.shape()),
                  rows, cols);
  const std::int64_t stored_rows = codes.codes.rows();
  const std::int64_t stored_cols = codes.codes.cols();
  // Bands of stored rows, small enough to be read again from a cache.
  constexpr auto kBand = static_cast<std::int64_t>(cpu::kErrorLanes);
  std::vector<float> band(static_cast<std::size_t>(kBand * stored_cols));
  std::vector<float> turned(codes.layout.codes_transposed ? band.size() : 0);
  cpu::with_compute_type(kOperation, "out", out, [&]<class T>(std::type_identity<T>) {
    T* result = cpu::data_of<T>(out);
    for (std::int64_t first = 0; first < stored_rows; first += kBand) {
      const std::int64_t end = std::min(first + kBand, stored_rows);
      cpu::decode_rows(codes, cpu::Rotation::kUndo, first, end, band.data());
      if (!codes.layout.codes_transposed) {
        const std::int64_t count = (end - first) * stored_cols;
        for (std::int64_t i = 0; i < count; ++i)
          result[first * stored_cols + i] = narrow<T>(band[static_cast<std::size_t>(i)]);
        continue;
      }
      // Sixteen columns of out; those of a band that is cut hold what was there before and are left out.
      cpu::loops().block_errors->interleave(band.data(), static_cast<std::size_t>(stored_cols),
                                            static_cast<std::size_t>(stored_cols), turned.data());
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t col = first; col < end; ++col) {
          result[row * cols + col] = narrow<T>(turned[static_cast<std::size_t>(row * kBand + col - first)]);
        }
      }
    }
  });
}

}  // namespace amaxscope

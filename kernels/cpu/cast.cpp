#include "kernels/cast.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kUnit = 1 << 14;  // elements that are not divided between threads
constexpr std::int64_t kTile = 64;      // a tile and its transpose stay in L1

struct Tile {
  std::int64_t row, row_end, col, col_end;
};

/// action(tile) over a matrix, row of tiles by row of tiles.
template <class Action>
void for_each_tile(std::int64_t rows, std::int64_t cols, Action&& action) {
  for (std::int64_t row = 0; row < rows; row += kTile) {
    for (std::int64_t col = 0; col < cols; col += kTile) {
      action(Tile{row, std::min(row + kTile, rows), col, std::min(col + kTile, cols)});
    }
  }
}

/// out [cols, rows] = tile of in [rows, cols], elements of kBytes bytes.
template <std::size_t kBytes>
void transpose_tile(const Tile& tile, const std::byte* in, std::int64_t rows, std::int64_t cols,
                    std::byte* out) {
  constexpr auto kStep = static_cast<std::int64_t>(kBytes);
  for (std::int64_t col = tile.col; col < tile.col_end; ++col) {
    for (std::int64_t row = tile.row; row < tile.row_end; ++row) {
      std::memcpy(out + (col * rows + row) * kStep, in + (row * cols + col) * kStep, kBytes);
    }
  }
}

Shape transposed_shape(const TensorView& x) { return {x.cols(), x.rows()}; }

void require_codes(std::string_view operation, const TensorView& x, const TensorView& out) {
  cpu::require_contiguous(operation, "x", x);
  cpu::require_shape(operation, "out", out, x.shape());
}

void require_fp8(std::string_view operation, DType format) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: out is {}; allowed are e4m3 and e5m2", operation,
                  to_string(format));
}

/// Types of one width are moved as bytes; a type of less than a byte cannot be.
void require_whole_bytes(std::string_view operation, const TensorView& x, const TensorView& out) {
  AMAXSCOPE_CHECK(x.dtype() == out.dtype() && bits_per_element(x.dtype()) % 8 == 0, ErrorCode::kTensor,
                  "{}: x is {} and out {}; wanted one type of whole bytes", operation, to_string(x.dtype()),
                  to_string(out.dtype()));
}

}  // namespace

void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "cast_to_fp8";
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->cast_to_fp8(x, scale, out);
  require_codes(kOperation, x, out);
  const float factor = cpu::read_scalar(kOperation, "scale", scale);
  require_fp8(kOperation, out.dtype());
  const auto count = static_cast<std::size_t>(x.numel());
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().format(out.dtype()).encode;
    const T* values = cpu::data_of<T>(x);
    auto* codes = cpu::data_of<std::uint8_t>(out);
    const cpu::Store store = cpu::store_for(count);
    cpu::over_elements(x, count, kUnit, [&](std::size_t, std::size_t first, std::size_t length) {
      loop(values + first, length, factor, codes + first, store);
    });
  });
}

void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                           const MutableTensorView& out_transposed) {
  constexpr std::string_view kOperation = "cast_transpose_to_fp8";
  if (DeviceKernels* device = device_kernels(kOperation, x))
    return device->cast_transpose_to_fp8(x, scale, out, out_transposed);
  require_codes(kOperation, x, out);
  cpu::require_shape(kOperation, "out_transposed", out_transposed, transposed_shape(x));
  require_whole_bytes(kOperation, out, out_transposed);
  const float factor = cpu::read_scalar(kOperation, "scale", scale);
  require_fp8(kOperation, out.dtype());
  const auto rows = static_cast<std::size_t>(x.rows());
  const auto cols = static_cast<std::size_t>(x.cols());
  auto* codes = cpu::data_of<std::uint8_t>(out);
  auto* transposed = cpu::data_of<std::uint8_t>(out_transposed);
  const cpu::Store store = cpu::store_for(2 * rows * cols);
  constexpr std::size_t kRows = 256;  // of a band, which one thread makes
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().format(out.dtype()).encode_transpose;
    const T* values = cpu::data_of<T>(x);
    cpu::Pieces(x, (rows + kRows - 1) / kRows)
        .run([&](std::size_t, std::size_t first_band, std::size_t end_band) {
          const std::size_t first = first_band * kRows;
          const std::size_t height = std::min(end_band * kRows, rows) - std::min(first, rows);
          loop(values + first * cols, height, cols, factor, codes + first * cols, transposed + first, rows,
               store);
        });
  });
}

void transpose(const TensorView& x, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "transpose";
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->transpose(x, out);
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_shape(kOperation, "out", out, transposed_shape(x));
  require_whole_bytes(kOperation, x, out);
  if (bits_per_element(x.dtype()) == 8) {
    const auto rows = static_cast<std::size_t>(x.rows());
    const auto cols = static_cast<std::size_t>(x.cols());
    cpu::loops().transpose(cpu::data_of<std::uint8_t>(x), cols, rows, cols, cpu::data_of<std::uint8_t>(out),
                           rows, cpu::Store::kCached);
    return;
  }
  const auto* in = cpu::data_of<std::byte>(x);
  auto* result = cpu::data_of<std::byte>(out);
  for_each_tile(x.rows(), x.cols(), [&](const Tile& tile) {
    switch (bits_per_element(x.dtype())) {
      case 16:
        return transpose_tile<2>(tile, in, x.rows(), x.cols(), result);
      case 32:
        return transpose_tile<4>(tile, in, x.rows(), x.cols(), result);
      default:
        return transpose_tile<8>(tile, in, x.rows(), x.cols(), result);
    }
  });
}

void convert(const TensorView& x, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "convert";
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->convert(x, out);
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_shape(kOperation, "out", out, x.shape());
  cpu::with_real_type(kOperation, "x", x, [&]<class From>(std::type_identity<From>) {
    cpu::with_real_type(kOperation, "out", out, [&]<class To>(std::type_identity<To>) {
      const From* from = cpu::data_of<From>(x);
      To* to = cpu::data_of<To>(out);
      const std::int64_t count = x.numel();
      if constexpr (std::is_same_v<From, To>) {
        std::copy_n(from, count, to);
      } else if constexpr (std::is_same_v<From, double>) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<To>(from[i]);
      } else {
        for (std::int64_t i = 0; i < count; ++i) to[i] = narrow<To>(to_float(from[i]));
      }
    });
  });
}

}  // namespace amaxscope

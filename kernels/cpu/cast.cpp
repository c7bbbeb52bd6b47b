#include "kernels/cast.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

namespace {

template <DType kFormat, class T>
void encode_run(const T* x, std::int64_t count, float scale, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) codes[i] = encode_fp8<kFormat>(to_float(x[i]) * scale);
}

constexpr std::int64_t kTile = 64;  // a tile of bytes and its transpose stay in L1

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

/// Types of one width are moved as bytes; a type of less than a byte cannot be.
void require_whole_bytes(std::string_view operation, const TensorView& x, const TensorView& out) {
  AMAXSCOPE_CHECK(x.dtype() == out.dtype() && bits_per_element(x.dtype()) % 8 == 0, ErrorCode::kTensor,
                  "{}: x is {} and out {}; wanted one type of whole bytes", operation, to_string(x.dtype()),
                  to_string(out.dtype()));
}

}  // namespace

void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "cast_to_fp8";
  require_codes(kOperation, x, out);
  const float factor = cpu::read_scalar(kOperation, "scale", scale);
  cpu::with_fp8_format(
      kOperation, "out", out.dtype(), [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
        cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
          encode_run<kFormat>(cpu::data_of<T>(x), x.numel(), factor, cpu::data_of<std::uint8_t>(out));
        });
      });
}

void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                           const MutableTensorView& out_transposed) {
  constexpr std::string_view kOperation = "cast_transpose_to_fp8";
  require_codes(kOperation, x, out);
  cpu::require_shape(kOperation, "out_transposed", out_transposed, transposed_shape(x));
  require_whole_bytes(kOperation, out, out_transposed);
  const float factor = cpu::read_scalar(kOperation, "scale", scale);
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  auto* codes = cpu::data_of<std::uint8_t>(out);
  cpu::with_fp8_format(
      kOperation, "out", out.dtype(), [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
        cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
          const T* values = cpu::data_of<T>(x);
          for_each_tile(rows, cols, [&](const Tile& tile) {
            for (std::int64_t row = tile.row; row < tile.row_end; ++row) {
              const std::int64_t first = row * cols + tile.col;
              encode_run<kFormat>(values + first, tile.col_end - tile.col, factor, codes + first);
            }
            transpose_tile<1>(tile, cpu::data_of<std::byte>(TensorView(out)), rows, cols,
                              cpu::data_of<std::byte>(out_transposed));
          });
        });
      });
}

void transpose(const TensorView& x, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "transpose";
  cpu::require_contiguous(kOperation, "x", x);
  cpu::require_shape(kOperation, "out", out, transposed_shape(x));
  require_whole_bytes(kOperation, x, out);
  const auto* in = cpu::data_of<std::byte>(x);
  auto* result = cpu::data_of<std::byte>(out);
  for_each_tile(x.rows(), x.cols(), [&](const Tile& tile) {
    switch (bits_per_element(x.dtype())) {
      case 8:
        return transpose_tile<1>(tile, in, x.rows(), x.cols(), result);
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

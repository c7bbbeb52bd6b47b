// Block-scaled codes decoded in the order they are stored in. Private to kernels/cpu.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "kernels/block_scaled_view.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/loops.hpp"

namespace amaxscope::cpu {

/// Whether rotated codes are decoded to what they are codes of, or to the matrix before the rotation.
enum class Rotation { kKeep, kUndo };

/// The values of 256 codes: of fp8, or of the low nibble.
const std::array<float, 256>& values_of_codes(DType format);

/// The stored scales that lie under one stored row of codes, decoded: entry g is for the codes
/// [g * granule, (g + 1) * granule) of that row.
void scales_of_row(const BlockScaledView& view, std::int64_t stored_row, std::vector<float>& scales);

/// out[i] = code * scale of the stored codes of rows first_row to end_row - 1, in T: float (rounded once) or
/// double (exact, but for undoing a rotation). view must be valid.
template <class T>
void decode_rows(const BlockScaledView& view, Rotation rotation, std::int64_t first_row, std::int64_t end_row,
                 T* out) {
  const BlockLayout& layout = view.layout;
  const std::int64_t stored_cols = view.codes.cols();
  // Stored rows that share their scales, and codes of a row that do.
  const std::int64_t band = layout.codes_transposed ? layout.scale_cols : layout.scale_rows;
  const std::int64_t granule = layout.codes_transposed ? layout.scale_rows : layout.scale_cols;
  const bool fp4 = layout.format == DType::kE2M1;
  const std::array<float, 256>& values = values_of_codes(layout.format);
  const auto* codes = static_cast<const std::uint8_t*>(view.codes.data());
  std::vector<float> scales;
  for (std::int64_t row = first_row; row < end_row; ++row) {
    if (row == first_row || row % band == 0) scales_of_row(view, row, scales);
    T* const result = out + (row - first_row) * stored_cols;
    if constexpr (std::is_same_v<T, float>) {
      // Short groups: all values of the row at once, which are scaled then. Rows of e2m1 begin at a byte.
      const auto count = static_cast<std::size_t>(stored_cols);
      if (fp4) {
        loops().block_errors->decode_e2m1(codes + row * stored_cols / 2, count, result);
      } else if (granule == 1 && !view.rotated) {
        loops()
            .f32.format(layout.format)
            .decode(codes + row * stored_cols, count, 1.0F, result, Store::kCached);
        for (std::size_t i = 0; i < count; ++i) result[i] *= scales[i];
        continue;
      }
    }
    const auto decoded = [&](std::int64_t col) {
      const std::int64_t index = row * stored_cols + col;
      if (!fp4) return static_cast<T>(values[codes[index]]);
      return static_cast<T>(values[(codes[index / 2] >> (index % 2 * 4)) & 0xFU]);
    };
    for (std::int64_t group = 0; group * granule < stored_cols; ++group) {
      const T scale = static_cast<T>(scales[static_cast<std::size_t>(group)]);
      const std::int64_t first = group * granule;
      const std::int64_t end = std::min(first + granule, stored_cols);
      if constexpr (std::is_same_v<T, float>) {
        if (fp4) {
          for (std::int64_t col = first; col < end; ++col) result[col] *= scale;
          continue;
        }
        if (granule >= 32) {
          loops()
              .f32.format(layout.format)
              .decode(codes + row * stored_cols + first, static_cast<std::size_t>(end - first), scale,
                      result + first, Store::kCached);
          continue;
        }
      }
      for (std::int64_t col = first; col < end; ++col) result[col] = decoded(col) * scale;
    }
    if (!view.rotated || rotation == Rotation::kKeep) continue;
    for (std::int64_t col = 0; col < stored_cols; col += static_cast<std::int64_t>(kHadamardSize)) {
      rotate_back(result + col);
    }
  }
}

/// decode_rows of all of them.
template <class T>
void decode_blocks(const BlockScaledView& view, Rotation rotation, T* out) {
  decode_rows(view, rotation, 0, view.codes.rows(), out);
}

}  // namespace amaxscope::cpu

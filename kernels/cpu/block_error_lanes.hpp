// Sixteen blocks of a matrix and of its codes, brought side by side for BlockErrorLoops. Private to
// kernels/cpu.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "kernels/block_scaled_view.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"
#include "kernels/cpu/block_error_loops.hpp"
#include "kernels/cpu/loops.hpp"

namespace amaxscope::cpu {

/// x and codes must outlive it and fit each other (require_valid, the same shape). One thread uses it.
template <class T>
class LaneReader {
 public:
  LaneReader(const TensorView& x, const BlockScaledView& codes)
      : codes_(codes),
        loops_(*loops().block_errors),
        decode_fp8_(
            loops().f32.format(codes.layout.format == DType::kE5M2 ? DType::kE5M2 : DType::kE4M3).decode),
        data_(data_of<T>(x)),
        stride_(x.row_stride()),
        fp4_(codes.layout.format == DType::kE2M1),
        block_cols_(codes.layout.block_cols) {}

  /// Elements of `lanes` blocks that lie side by side along K, from (row, col) of the first of them on:
  /// `steps` of them, at most kErrorSteps, along M where blocks have one column, else along K.
  void read(std::int64_t row, std::int64_t col, std::size_t lanes, std::size_t steps) {
    if (block_cols_ == 1) {
      read_columns(row, col, lanes, steps);
    } else {
      read_rows(row, col, lanes, steps);
    }
  }
  [[nodiscard]] const float* x() const noexcept { return x_.data(); }
  [[nodiscard]] const float* values() const noexcept { return values_.data(); }

 private:
  using Stretch = std::array<float, kErrorStretch>;

  void read_columns(std::int64_t row, std::int64_t col, std::size_t lanes, std::size_t steps) {
    const T* from = data_ + row * stride_ + col;
    for (std::size_t step = 0; step < steps; ++step) {
      widen(from + static_cast<std::int64_t>(step) * stride_, lanes, x_.data() + step * kErrorLanes);
    }
    if (codes_.rotated) loops().nvfp4->rotate(x_.data(), false);
    const std::int64_t stored_cols = codes_.codes.cols();
    if (codes_.layout.codes_transposed) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        decode((col + static_cast<std::int64_t>(lane)) * stored_cols + row, steps,
               rows_.data() + lane * kErrorSteps);
      }
      loops_.interleave(rows_.data(), kErrorSteps, steps, values_.data());
    } else if (!fp4_) {
      for (std::size_t step = 0; step < steps; ++step) {
        std::memcpy(bytes_.data() + step * kErrorLanes,
                    stored() + (row + static_cast<std::int64_t>(step)) * stored_cols + col, lanes);
      }
      decode_fp8_(bytes_.data(), steps * kErrorLanes, 1.0F, values_.data(), Store::kCached);
    } else {
      for (std::size_t step = 0; step < steps; ++step) {
        decode((row + static_cast<std::int64_t>(step)) * stored_cols + col, lanes,
               values_.data() + step * kErrorLanes);
      }
    }
  }

  void read_rows(std::int64_t row, std::int64_t col, std::size_t lanes, std::size_t steps) {
    const T* from = data_ + row * stride_ + col;
    const auto distance = static_cast<std::size_t>(block_cols_);
    const bool whole = steps == distance;  // the elements of all lanes follow each other
    if (std::is_same_v<T, float> && lanes == kErrorLanes) {
      if constexpr (std::is_same_v<T, float>) loops_.interleave(from, distance, steps, x_.data());
    } else {
      if (whole) {
        widen(from, lanes * steps, rows_.data());
      } else {
        for (std::size_t lane = 0; lane < lanes; ++lane)
          widen(from + lane * distance, steps, rows_.data() + lane * steps);
      }
      loops_.interleave(rows_.data(), steps, steps, x_.data());
    }
    const std::int64_t stored_cols = codes_.codes.cols();
    if (codes_.layout.codes_transposed) {
      const std::array<float, 256>& value_of = values_of_codes(codes_.layout.format);
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t first = col + static_cast<std::int64_t>(lane * distance);
        for (std::size_t step = 0; step < steps; ++step) {
          values_[step * kErrorLanes + lane] =
              value_of[codes_.code(row, first + static_cast<std::int64_t>(step))];
        }
      }
      return;
    }
    if (whole) {
      decode(row * stored_cols + col, lanes * steps, rows_.data());
    } else {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        decode(row * stored_cols + col + static_cast<std::int64_t>(lane * distance), steps,
               rows_.data() + lane * steps);
      }
    }
    loops_.interleave(rows_.data(), steps, steps, values_.data());
  }

  [[nodiscard]] const std::uint8_t* stored() const noexcept {
    return static_cast<const std::uint8_t*>(codes_.codes.data());
  }
  /// The values of `count` codes from a stored index on, before they are scaled.
  void decode(std::int64_t index, std::size_t count, float* out) const {
    if (!fp4_) {
      decode_fp8_(stored() + index, count, 1.0F, out, Store::kCached);
    } else if (index % 2 == 0) {
      loops_.decode_e2m1(stored() + index / 2, count, out);
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t at = index + static_cast<std::int64_t>(i);
        out[i] = decode_e2m1(static_cast<std::uint8_t>(stored()[at / 2] >> (at % 2 * 4)));
      }
    }
  }
  void widen(const T* from, std::size_t count, float* out) const {
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(out, from, count * sizeof(float));
    } else if constexpr (std::is_same_v<T, BF16>) {
      loops_.widen_bf16(from, count, out);
    } else {
      loops_.widen_f16(from, count, out);
    }
  }

  const BlockScaledView& codes_;
  const BlockErrorLoops& loops_;
  decltype(FormatLoops<float>::decode) decode_fp8_;
  const T* data_;
  std::int64_t stride_;
  bool fp4_;
  std::int64_t block_cols_;
  // Zero where lanes are not in use.
  alignas(64) Stretch x_{};
  alignas(64) Stretch values_{};
  alignas(64) Stretch rows_{};
  alignas(64) std::array<std::uint8_t, kErrorStretch> bytes_{};
};

}  // namespace amaxscope::cpu

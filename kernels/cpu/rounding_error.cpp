#include "kernels/rounding_error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/codec/grid.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "sampled_rounding_errors";

float step_at(float magnitude, const CodeGrid& grid) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(magnitude) >> 23) - 127;
  return std::ldexp(1.0F, std::max(exponent, grid.min_exponent) - grid.mantissa_bits);
}

}  // namespace

void sampled_rounding_errors(const TensorView& x, const BlockScaledView& codes, std::span<float> errors,
                             std::span<float> outward) {
  require_host(kOperation, "x", x);
  require_valid(codes, kOperation);
  AMAXSCOPE_CHECK(x.rows() == codes.rows() && x.cols() == codes.cols(), ErrorCode::kTensor,
                  "{}: x has shape {}, the codes are of {} x {}", kOperation, to_string(x.shape()),
                  codes.rows(), codes.cols());
  AMAXSCOPE_CHECK(errors.size() == outward.size(), ErrorCode::kTensor,
                  "{}: {} places for errors, {} for those away from zero", kOperation, errors.size(),
                  outward.size());
  std::ranges::fill(errors, std::numeric_limits<float>::quiet_NaN());
  std::ranges::fill(outward, std::numeric_limits<float>::quiet_NaN());
  const auto count = static_cast<std::int64_t>(errors.size());
  if (count > x.numel()) return;
  const CodeGrid grid = code_grid(codes.layout.format);
  const std::array<float, 256>& values = cpu::values_of_codes(codes.layout.format);
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const T* data = cpu::data_of<T>(x);
    const auto original = [&](std::int64_t row, std::int64_t col) {
      if (!codes.rotated) return to_float(data[row * x.row_stride() + col]);
      constexpr auto kGroup = static_cast<std::int64_t>(kHadamardSize);
      std::array<float, kHadamardSize> group;
      const std::int64_t first = row / kGroup * kGroup;
      for (std::int64_t i = 0; i < kGroup; ++i) {
        group[static_cast<std::size_t>(i)] = to_float(data[(first + i) * x.row_stride() + col]);
      }
      rotate(group.data());
      return group[static_cast<std::size_t>(row - first)];
    };
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t place = k * (x.numel() / count) + k * (x.numel() % count) / count;
      const std::int64_t row = place / x.cols();
      const std::int64_t col = place % x.cols();
      const float scale = codes.stored_scale(codes.scale_index(row, col));
      const float scaled = original(row, col) / scale;
      if (!(std::abs(scaled) <= grid.max) || scaled == 0.0F || !(scale > 0.0F)) continue;
      const float error = (values[codes.code(row, col)] - scaled) / step_at(std::abs(scaled), grid);
      errors[static_cast<std::size_t>(k)] = error;
      outward[static_cast<std::size_t>(k)] = scaled < 0.0F ? -error : error;
    }
  });
}

}  // namespace amaxscope

#include "kernels/block_scaled_view.hpp"

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/block_decode.hpp"

namespace amaxscope {

void require_valid(const BlockScaledView& view, std::string_view what) {
  const BlockLayout& layout = view.layout;
  for (const TensorView* part : {&view.codes, &view.scales}) {
    AMAXSCOPE_CHECK(part->contiguous() && part->device() == view.codes.device(), ErrorCode::kTensor,
                    "{}: {} of shape {} on {} with row stride {}; wanted contiguous parts on one device",
                    what, part == &view.codes ? "codes" : "scales", to_string(part->shape()),
                    to_string(part->device()), part->row_stride());
  }
  AMAXSCOPE_CHECK(is_fp8(layout.format) || layout.format == DType::kE2M1, ErrorCode::kTensor,
                  "{}: codes of {}; block-scaled codes are e4m3, e5m2 or e2m1", what,
                  to_string(layout.format));
  AMAXSCOPE_CHECK(view.codes.dtype() == layout.format && view.scales.dtype() == layout.scale_format,
                  ErrorCode::kTensor, "{}: codes are {} and scales {}, the layout says {} and {}", what,
                  to_string(view.codes.dtype()), to_string(view.scales.dtype()), to_string(layout.format),
                  to_string(layout.scale_format));
  AMAXSCOPE_CHECK(layout.scale_format == DType::kE8M0 || layout.scale_format == DType::kF32 ||
                      layout.scale_format == DType::kE4M3,
                  ErrorCode::kTensor, "{}: scales are {}; allowed are e8m0, f32 and e4m3", what,
                  to_string(layout.scale_format));
  AMAXSCOPE_CHECK(layout.block_rows >= 1 && layout.block_cols >= 1 && layout.scale_rows >= 1 &&
                      layout.scale_cols >= 1 && layout.pad_rows >= 1 && layout.pad_cols >= 1 &&
                      layout.block_rows % layout.scale_rows == 0 &&
                      layout.block_cols % layout.scale_cols == 0,
                  ErrorCode::kTensor, "{}: blocks of {} x {} with stored scales for {} x {}", what,
                  layout.block_rows, layout.block_cols, layout.scale_rows, layout.scale_cols);
  AMAXSCOPE_CHECK(view.scales.shape() == layout.scales_shape(view.rows(), view.cols()), ErrorCode::kTensor,
                  "{}: scales have shape {}, codes of {} x {} need {}", what, to_string(view.scales.shape()),
                  view.rows(), view.cols(), to_string(layout.scales_shape(view.rows(), view.cols())));
  AMAXSCOPE_CHECK(layout.format != DType::kE2M1 || view.codes.cols() % 2 == 0, ErrorCode::kTensor,
                  "{}: rows of {} codes of four bits do not end at a byte", what, view.codes.cols());
  AMAXSCOPE_CHECK(
      !view.rotated ||
          (layout.codes_transposed && view.codes.cols() % static_cast<std::int64_t>(kHadamardSize) == 0),
      ErrorCode::kTensor, "{}: only transposed codes of a multiple of {} rows can be rotated, not {} x {}",
      what, kHadamardSize, view.rows(), view.cols());
}

namespace cpu {

const std::array<float, 256>& values_of_codes(DType format) {
  static constexpr std::array<float, 256> kFp4Values = [] {
    std::array<float, 256> values{};
    for (std::size_t code = 0; code < values.size(); ++code) {
      values[code] = decode_e2m1(static_cast<std::uint8_t>(code & 0xFU));
    }
    return values;
  }();
  if (format == DType::kE2M1) return kFp4Values;
  return format == DType::kE4M3 ? kFp8Values<DType::kE4M3> : kFp8Values<DType::kE5M2>;
}

void scales_of_row(const BlockScaledView& view, std::int64_t stored_row, std::vector<float>& scales) {
  const bool transposed = view.layout.codes_transposed;
  const std::int64_t granule = transposed ? view.layout.scale_rows : view.layout.scale_cols;
  const std::int64_t count = (view.codes.cols() + granule - 1) / granule;
  scales.resize(static_cast<std::size_t>(count));
  const auto index = [&](std::int64_t along) {
    return transposed ? view.scale_index(along, stored_row) : view.scale_index(stored_row, along);
  };
  // Stored scales of neighbouring groups are equally far apart.
  const std::int64_t first = index(0);
  const std::int64_t step = index(granule) - first;
  for (std::int64_t group = 0; group < count; ++group) {
    scales[static_cast<std::size_t>(group)] = view.stored_scale(first + group * step);
  }
}

}  // namespace cpu

}  // namespace amaxscope

#include "kernels/cuda/gemm_scales.hpp"

#include "kernels/cuda/arguments.hpp"

namespace amaxscope::cuda {

namespace {

/// The scales of a matrix seen as a factor of a product: rows of it and stretches along its depth.
ScaleBytes scales_of(std::string_view operation, const BlockScaledView& codes) {
  const BlockLayout& layout = codes.layout;
  const bool along_rows = layout.scale_rows > 1;  // the depth is M
  AMAXSCOPE_CHECK(size_bytes(layout.scale_format, 1) == 1 && layout.scale_format == codes.scales.dtype() &&
                      (layout.scale_rows == 1 || layout.scale_cols == 1),
                  ErrorCode::kTensor,
                  "{}: {} scales for {} x {} elements; wanted are scales of one byte for elements of one row "
                  "or column",
                  operation, to_string(layout.scale_format), layout.scale_rows, layout.scale_cols);
  require_shape(operation, "scales", codes.scales, layout.scales_shape(codes.rows(), codes.cols()),
                codes.codes);
  const std::int64_t stride = codes.scales.cols();
  // Stored arrays run along K, or along M where they are transposed.
  const bool inner_first = layout.scales_transposed == along_rows;
  return {.scales = data_of<std::uint8_t>(codes.scales),
          .outer = along_rows ? codes.cols() : codes.rows(),
          .inner = along_rows ? (codes.rows() + layout.scale_rows - 1) / layout.scale_rows
                              : (codes.cols() + layout.scale_cols - 1) / layout.scale_cols,
          .outer_stride = inner_first ? stride : 1,
          .inner_stride = inner_first ? 1 : stride};
}

void require_tensor_scale(const BlockScaledView& codes, const TensorView& like) {
  AMAXSCOPE_CHECK(codes.tensor_scale && codes.device_amax, ErrorCode::kTensor,
                  "product_scale: codes without a second level of scales in device memory");
  require_vector("product_scale", "amax", *codes.device_amax, DType::kU32, 1, like);
}

}  // namespace

std::int64_t tiled_scales_bytes(const BlockScaledView& codes) {
  const ScaleBytes scales = scales_of("tiled_scales_bytes", codes);
  return BlockLayout::up(scales.outer, 128) * BlockLayout::up(scales.inner, 4);
}

void tile_scales(const BlockScaledView& codes, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "tile_scales";
  const ScaleBytes scales = scales_of(kOperation, codes);
  require_vector(kOperation, "out", out, DType::kU8, tiled_scales_bytes(codes), codes.codes);
  AMAXSCOPE_CHECK(reinterpret_cast<std::uintptr_t>(out.data()) % 16 == 0, ErrorCode::kTensor,
                  "{}: out is not aligned to 16 bytes", kOperation);
  require_started(kOperation, launch_tile_scales(scales, data_of<std::uint8_t>(out), codes.codes.stream()));
}

void product_scale(const BlockScaledView& a, const BlockScaledView& b, float beta,
                   const MutableTensorView& out) {
  require_vector("product_scale", "out", out, DType::kF32, 2, a.codes);
  require_tensor_scale(a, a.codes);
  require_tensor_scale(b, a.codes);
  require_started("product_scale",
                  launch_product_scale(data_of<std::uint32_t>(*a.device_amax), a.tensor_scale->factor,
                                       data_of<std::uint32_t>(*b.device_amax), b.tensor_scale->factor, beta,
                                       data_of<float>(out), a.codes.stream()));
}

}  // namespace amaxscope::cuda

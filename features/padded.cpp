#include "features/padded.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/device_backend.hpp"
#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

namespace {

/// Row by row, as many bytes as the narrower of the two has.
void copy_rows(const TensorView& from, const MutableTensorView& to) {
  const auto width = static_cast<std::size_t>(bits_per_element(from.dtype())) / 8;
  const std::int64_t rows = std::min(from.rows(), to.rows());
  const std::size_t bytes = static_cast<std::size_t>(std::min(from.cols(), to.cols())) * width;
  if (bytes == 0) return;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(to.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(target + static_cast<std::size_t>(row * to.row_stride()) * width,
                source + static_cast<std::size_t>(row * from.row_stride()) * width, bytes);
  }
}

}  // namespace

Padded::Padded(const TensorView& x, std::int64_t multiple) : view_(x) {
  const Shape full{BlockLayout::up(x.rows(), multiple), BlockLayout::up(x.cols(), multiple)};
  if (full.rows() == x.rows() && full.cols() == x.cols() && x.contiguous()) return;
  copy_ = Tensor(x.dtype(), full);  // zeroed
  if (x.device().kind == DeviceKind::kCpu) {
    copy_rows(x, copy_);
  } else {
    copy_rows(to_host(x), copy_);
    copy_ = to_device(copy_.view(), x);
  }
  view_ = copy_.view();
}

Tensor cropped(const TensorView& matrix, const Shape& shape) {
  Tensor result(matrix.dtype(), {shape.rows(), shape.cols()});
  if (matrix.device().kind == DeviceKind::kCpu) {
    copy_rows(matrix, result);
  } else if (matrix.numel() == shape.numel()) {  // was not padded
    result = Tensor::beside(matrix, matrix.dtype(), result.shape());
    copy_tensor(result, matrix);
  } else {
    copy_rows(to_host(matrix), result);
    result = to_device(result.view(), matrix);
  }
  result.reshape(shape);
  return result;
}

}  // namespace amaxscope

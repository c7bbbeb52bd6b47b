// Tensors of any shape for formats whose blocks must be full.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope {

/// x as a matrix with rows and columns of zeros added until both extents are multiples; x itself when they
/// are and its rows follow each other. Zeros change no amax, so the blocks of x are quantized as they would
/// be alone. Borrows x.
class Padded {
 public:
  Padded(const TensorView& x, std::int64_t multiple);
  [[nodiscard]] const TensorView& view() const noexcept { return view_; }

 private:
  Tensor copy_;
  TensorView view_;
};

/// The first rows and columns of a matrix, as many as shape has, in that shape.
Tensor cropped(const TensorView& matrix, const Shape& shape);

}  // namespace amaxscope

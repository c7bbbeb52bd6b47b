// Results that kernels add up in device memory, over several tensors: the micro-batches of a step, the
// replays of a captured one. The host reads them when it wants them, and nothing waits in between.
#pragma once

#include <cstddef>
#include <optional>

#include "core/tensor.hpp"
#include "kernels/accumulated.hpp"
#include "kernels/codec/scale.hpp"

namespace amaxscope {

/// Where a result is added: memory whose address does not change for as long as work that names it may run, a
/// captured graph included. All on the device and stream of what is looked at.
struct ResultSlot {
  /// u8 [sizeof(Accumulated<Result>)], aligned to 16. Zeros: nothing was added yet.
  MutableTensorView memory;
  /// u8 [DeviceKernels::workspace_bytes()] or more, aligned to 16. Work of one stream may share it.
  MutableTensorView workspace;
  /// u32 [1], read when the kernels run: where it is 0 they add nothing. None: they always add.
  std::optional<TensorView> due = std::nullopt;
  /// i64 [1], read when the kernels run: AccumulatedHeader::iteration. None: that is left as it is.
  std::optional<TensorView> iteration = std::nullopt;
  bool once = false;  ///< nothing is added to what has something already
};

/// A tensor and its codes under one scale.
struct ScaledQuantization {
  TensorView x;                                    ///< f32, f16, bf16; rows may be padded
  std::optional<TensorView> codes = std::nullopt;  ///< of x's shape; none: of the cast to `format`
  DType format = DType::kE4M3;
  TensorView scale;      ///< f32 [1]
  TensorView scale_inv;  ///< f32 [1]
  /// u32 [1], of which the scale was made with these options. None: ScaledError::clamps says nothing.
  std::optional<TensorView> amax = std::nullopt;
  ScaleOptions options = {};
};

}  // namespace amaxscope

// What multiplies matrices on a CUDA device. The interface names no library.
#pragma once

#include <functional>
#include <string>

#include "kernels/gemm.hpp"

namespace amaxscope {

/// Thread safety: one thread at a time.
class DeviceGemm {
 public:
  virtual ~DeviceGemm() = default;
  /// kernels/gemm.hpp, enqueued on out's stream. Empty: it is. Otherwise why this library or device does not
  /// multiply such operands as they are, and `out` is as it was.
  [[nodiscard]] virtual std::string multiply(const GemmOperand& a, const GemmOperand& b,
                                             const MutableTensorView& out, float beta) = 0;
};

/// What becomes of operands that DeviceGemm does not multiply as they are.
enum class UnsupportedGemm {
  kDequantize,  ///< decoded to f32 and multiplied in f32; said once for each reason
  kRefuse,      ///< Error(kTensor)
};

}  // namespace amaxscope

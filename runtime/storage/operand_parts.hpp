// A quantized tensor as the parts of a safetensors file (config.md section 5): what DumpTensors and
// `amaxscope quantize` write. Borrows what it is given until it is written. Used by one thread.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

class OperandParts {
 public:
  void add(const std::string& name, const TensorView& view) { tensors_.push_back({name, view}); }
  /// The codes of a direction with their scales: "rowwise", "rowwise_scale_inv", of NVFP4 also
  /// "rowwise_amax"; "rowwise_high_precision" where it was not quantized. Nothing when the operand has not
  /// got the direction. Rowwise codes have the tensor's shape, columnwise ones that in which they are stored.
  /// Throws Error(kInternal) for a kind of operand that it does not know.
  void add_direction(const QuantizedTensor& operand, Direction direction);

  [[nodiscard]] const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  /// "rowwise_format": "e4m3"; of block formats also "rowwise_block": "1x32" (elements of [M, K] that share a
  /// scale), "rowwise_codes" and "rowwise_scales": "transposed" when they run along K first, and
  /// "columnwise_rotated": "true" for the random Hadamard transform.
  [[nodiscard]] const std::map<std::string, std::string>& formats() const noexcept { return formats_; }

 private:
  void add_number(const std::string& name, float number);

  std::vector<NamedTensor> tensors_;
  std::deque<float> numbers_;
  std::map<std::string, std::string> formats_;
};

}  // namespace amaxscope

// Looking at a few elements of tensors, wherever their bytes are. Pure functions, CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/quantizers/quantized_tensor.hpp"

namespace amaxscope {

/// At most `count` flat indices into numel elements: all of them when they are few, else one from each of
/// `count` equal stretches, at a place within it that looks random and is always the same.
std::vector<std::int64_t> sample_positions(std::int64_t numel, std::size_t count);

/// The element at a flat index of the logical [M, K]; f64 is rounded.
float element(const TensorView& x, std::int64_t index);

/// What the codes of a direction say of one element.
struct DecodedElement {
  float value = 0;
  float tolerance = 0;     ///< half the distance to the next code: what rounding to this grid may move
  bool saturated = false;  ///< the largest code: the original may be anything beyond
};
/// index into the logical [M, K]. None for a kind of tensor whose elements cannot be compared with the
/// original (NVFP4 after a Hadamard transform) or whose direction is not there.
std::optional<DecodedElement> decoded_element(const QuantizedTensor& tensor, Direction direction,
                                              std::int64_t index);

/// Fingerprint of everything a GEMM reads of this direction: codes, scales, format. None when it is not
/// there.
std::optional<std::uint64_t> operand_fingerprint(const QuantizedTensor& tensor, Direction direction);

}  // namespace amaxscope

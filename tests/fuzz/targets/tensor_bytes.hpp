// What tests/fuzz reads of a tensor file that opened.
#pragma once

#include "runtime/storage/tensor_file.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

/// Everything that fits into a MiB, by both ways of reading.
inline void read_tensors(const TensorFile& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.bytes > 1U << 20U) continue;
    may_refuse([&] { (void)file.read(tensor); });
    may_refuse([&] { (void)file.read_rows(tensor, 0, 1); });
  }
}

}  // namespace amaxscope::fuzz

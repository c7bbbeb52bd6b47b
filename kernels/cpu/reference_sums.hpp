// Sums in double over a block of elements, in the order that loops.hpp fixes. Private to kernels/cpu.
#pragma once

#include "kernels/cpu/loops.hpp"

namespace amaxscope::cpu::reference {

/// T: float, F16, BF16.
template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order);

/// kFormat: e4m3, e5m2.
template <DType kFormat, class T>
void add_error(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
               QuantizationError& sums);

}  // namespace amaxscope::cpu::reference

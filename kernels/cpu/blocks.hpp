// Partial results of blocks, made by any thread and put together in the order of the blocks. Private to
// kernels/cpu.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"

namespace amaxscope::cpu {

/// merge(make(first element, number of elements)) for every kBlock elements, in their order. make runs on the
/// threads that x carries and must not throw, merge on the caller's.
template <class Partial, class Make, class Merge>
void over_blocks(const TensorView& x, std::size_t count, Make&& make, Merge&& merge) {
  const auto made = [&](std::size_t block) {
    return make(block * kBlock, std::min(kBlock, count - block * kBlock));
  };
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  if (Pieces(x, blocks).count() == 1) {
    for (std::size_t block = 0; block < blocks; ++block) merge(made(block));
    return;
  }
  constexpr std::size_t kWave = 2048;  // partial results that are held at a time
  std::vector<Partial> partials(std::min(kWave, blocks));
  for (std::size_t wave = 0; wave < blocks; wave += kWave) {
    const std::size_t size = std::min(kWave, blocks - wave);
    Pieces(x, size).run([&](std::size_t, std::size_t first, std::size_t end) {
      for (std::size_t i = first; i < end; ++i) partials[i] = made(wave + i);
    });
    for (std::size_t i = 0; i < size; ++i) merge(partials[i]);
  }
}

}  // namespace amaxscope::cpu

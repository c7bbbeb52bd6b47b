// A matrix of one, two or four byte elements turned round, through tiles in shared memory.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace amaxscope::cuda {

namespace {

constexpr int kSide = 64;
/// Elements of a tile that a thread of kThreads takes, in both directions.
constexpr int kElements = kSide * kSide / kThreads;

template <class Element>
struct TurnedTile {
  /// One more than the side: rows begin in different banks.
  Element elements[kSide * (kSide + 1)];
};

template <class Element>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const Element* x, std::int64_t rows, std::int64_t cols, Element* out) {
  auto& tile = shared<TurnedTile<Element>>().elements;
  constexpr int kPack = 16 / static_cast<int>(sizeof(Element));
  constexpr int kPacks = kElements / kPack;  // at least 1: sixteen elements of a thread
  const bool in_packs = cols % kPack == 0 && is_aligned(x, 16);
  const bool out_packs = rows % kPack == 0 && is_aligned(out, 16);
  const std::int64_t across = (cols + kSide - 1) / kSide;
  const std::int64_t tiles = (rows + kSide - 1) / kSide * across;
  union Words {
    uint4 vector;
    Element elements[kPack];
  };
  for (std::int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const std::int64_t row = i / across * kSide;
    const std::int64_t col = i % across * kSide;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int place = (k * kThreads + static_cast<int>(threadIdx.x)) * kPack;
      const int r = place / kSide;
      const int c = place % kSide;
      if (row + r >= rows) continue;
      const Element* const from = x + (row + r) * cols + col + c;
      if (in_packs) {
        if (col + c >= cols) continue;
        Words words;
        words.vector = load(reinterpret_cast<const uint4*>(from));
#pragma unroll
        for (int e = 0; e < kPack; ++e) tile[r * (kSide + 1) + c + e] = words.elements[e];
      } else {
#pragma unroll
        for (int e = 0; e < kPack; ++e) {
          if (col + c + e < cols) tile[r * (kSide + 1) + c + e] = from[e];
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int place = (k * kThreads + static_cast<int>(threadIdx.x)) * kPack;
      const int c = place / kSide;  // a row of out
      const int r = place % kSide;
      if (col + c >= cols) continue;
      Element* const to = out + (col + c) * rows + row + r;
      if (out_packs) {
        if (row + r >= rows) continue;
        Words words;
#pragma unroll
        for (int e = 0; e < kPack; ++e) words.elements[e] = tile[(r + e) * (kSide + 1) + c];
        store(reinterpret_cast<uint4*>(to), words.vector);
      } else {
#pragma unroll
        for (int e = 0; e < kPack; ++e) {
          if (row + r + e < rows) to[e] = tile[(r + e) * (kSide + 1) + c];
        }
      }
    }
    __syncthreads();  // before the next tile is put there
  }
}

template <class Element>
LaunchError turn(const void* x, std::int64_t rows, std::int64_t cols, void* out, Stream stream) {
  const std::int64_t tiles = (rows + kSide - 1) / kSide * ((cols + kSide - 1) / kSide);
  return launch(transpose_kernel<Element>, dim3{blocks_for(tiles, 8), 1, 1}, kThreads, stream,
                static_cast<const Element*>(x), rows, cols, static_cast<Element*>(out));
}

}  // namespace

LaunchError launch_transpose(const void* x, int element_bytes, std::int64_t rows, std::int64_t cols,
                             void* out, Stream stream) {
  if (rows * cols == 0) return nullptr;
  if (element_bytes == 1) return turn<std::uint8_t>(x, rows, cols, out, stream);
  if (element_bytes == 2) return turn<std::uint16_t>(x, rows, cols, out, stream);
  return turn<std::uint32_t>(x, rows, cols, out, stream);
}

}  // namespace amaxscope::cuda

// 64 x 64 floats in shared memory, of which a thread of 256 takes 16 neighbours of a row or of a column: the
// groups of NVFP4, and dequantizing.
#pragma once

#include "kernels/cuda/device.cuh"

namespace amaxscope::cuda {

inline constexpr int kGroup = 16;
inline constexpr int kGroupTile = 64;
inline constexpr int kGroupThreads = 256;

struct GroupTile {
  /// A word between groups, and eight between bands of 16 rows: threads that take groups of a row, and
  /// threads that take groups of a column, find theirs in different banks.
  static constexpr int kStride = kGroupTile + kGroupTile / kGroup;
  float values[kGroupTile * kStride + kGroupTile / kGroup * 8];

  __device__ float& at(int row, int col) {
    return values[row * kStride + row / kGroup * 8 + col + col / kGroup];
  }
};

/// The group a thread takes: `line` is its row or column, `first` where on that it begins.
__device__ inline int group_line() { return static_cast<int>(threadIdx.x) / (kGroupTile / kGroup); }
__device__ inline int group_first() { return static_cast<int>(threadIdx.x) % (kGroupTile / kGroup) * kGroup; }

__device__ inline void row_group(GroupTile& tile, float (&values)[kGroup]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) values[i] = tile.at(group_line(), group_first() + i);
}
__device__ inline void column_group(GroupTile& tile, float (&values)[kGroup]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) values[i] = tile.at(group_first() + i, group_line());
}

/// Elements of x [rows, cols] from (row, col) on; those beyond are 0. Needs a barrier before it is read.
template <class T>
__device__ void fill_tile(GroupTile& tile, const T* x, std::int64_t rows, std::int64_t cols, std::int64_t row,
                          std::int64_t col) {
  constexpr int kCount = Pack<T>::kCount;
  constexpr int kPacks = kGroupTile * kGroupTile / kCount / kGroupThreads;
  const bool vectors = cols % kCount == 0 && is_aligned(x, 16);
  Pack<T> packs[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int place = (k * kGroupThreads + static_cast<int>(threadIdx.x)) * kCount;
    const std::int64_t r = row + place / kGroupTile;
    const std::int64_t c = col + place % kGroupTile;
    packs[k] = zero_pack<T>();
    if (vectors) {
      if (r < rows && c < cols) packs[k] = load_pack(x + r * cols + c);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (r < rows && c + i < cols) packs[k].set(i, x[r * cols + c + i]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int place = (k * kGroupThreads + static_cast<int>(threadIdx.x)) * kCount;
#pragma unroll
    for (int i = 0; i < kCount; ++i) tile.at(place / kGroupTile, place % kGroupTile + i) = packs[k][i];
  }
}

/// action(row, col) for each tile of a rows x cols matrix that is the block's.
template <class Action>
__device__ void for_each_group_tile(std::int64_t rows, std::int64_t cols, Action action) {
  const std::int64_t across = (cols + kGroupTile - 1) / kGroupTile;
  const std::int64_t tiles = (rows + kGroupTile - 1) / kGroupTile * across;
  for (std::int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    action(i / across * kGroupTile, i % across * kGroupTile);
  }
}

inline std::int64_t group_tiles_of(std::int64_t rows, std::int64_t cols) {
  return (rows + kGroupTile - 1) / kGroupTile * ((cols + kGroupTile - 1) / kGroupTile);
}

}  // namespace amaxscope::cuda

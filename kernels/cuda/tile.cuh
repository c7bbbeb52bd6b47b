// A tile of 128 x 128 elements in the registers of a block of 512 threads, and its FP8 codes on their way to
// a transposed matrix through shared memory.
#pragma once

#include "kernels/cuda/device.cuh"

namespace amaxscope::cuda {

inline constexpr int kTile = 128;
inline constexpr int kTileThreads = 512;

/// Which elements of a tile a thread has: kPasses packs, all in the same columns.
template <class T>
struct TilePlaces {
  static constexpr int kCount = Pack<T>::kCount;
  static constexpr int kLanesPerRow = kTile / kCount;
  static constexpr int kRowsPerPass = kTileThreads / kLanesPerRow;
  static constexpr int kPasses = kTile / kRowsPerPass;
  __device__ static int col() { return static_cast<int>(threadIdx.x) % kLanesPerRow * kCount; }
  __device__ static int row(int pass) {
    return static_cast<int>(threadIdx.x) / kLanesPerRow + pass * kRowsPerPass;
  }
};

/// A contiguous matrix and where in it a tile lies.
template <class T>
struct TileOrigin {
  const T* x;
  std::int64_t rows, cols;
  std::int64_t row, col;
  int height, width;  ///< of the part of the tile that is in the matrix
  bool vectors;  ///< every pack of a row lies at a multiple of 16 bytes and is in the matrix as a whole or
                 ///< not at all

  __device__ bool has(int r, int c) const { return r < height && c < width; }
  __device__ std::int64_t index(int r, int c) const { return (row + r) * cols + col + c; }
};

/// Elements beyond the matrix are 0.
template <class T>
__device__ void load_tile(const TileOrigin<T>& tile, Pack<T> (&packs)[TilePlaces<T>::kPasses]) {
  using Places = TilePlaces<T>;
#pragma unroll
  for (int pass = 0; pass < Places::kPasses; ++pass) {
    packs[pass] = zero_pack<T>();
    const int row = Places::row(pass);
    if (tile.vectors) {
      if (tile.has(row, Places::col())) packs[pass] = load_pack(tile.x + tile.index(row, Places::col()));
    } else {
#pragma unroll
      for (int i = 0; i < Places::kCount; ++i) {
        if (tile.has(row, Places::col() + i)) packs[pass].set(i, tile.x[tile.index(row, Places::col() + i)]);
      }
    }
  }
}

/// Codes of a pack at (row, Places::col()) of the tile, into a matrix that lies as x does.
template <class T>
__device__ void store_row(const TileOrigin<T>& tile, int row, const Fp8Codes<T>& codes, std::uint8_t* out,
                          bool aligned) {
  using Places = TilePlaces<T>;
  if (aligned) {
    if (tile.has(row, Places::col())) store_codes<T>(out + tile.index(row, Places::col()), codes);
    return;
  }
#pragma unroll
  for (int i = 0; i < Places::kCount; ++i) {
    if (tile.has(row, Places::col() + i)) {
      out[tile.index(row, Places::col() + i)] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
    }
  }
}

/// The codes of a tile. Rows are a word longer than the tile, so that rows begin in different banks.
struct CodeTile {
  static constexpr int kStride = kTile / 4 + 1;  // words
  std::uint32_t words[kTile * kStride];

  template <class T>
  __device__ void put(int row, const Fp8Codes<T>& codes) {
    const int first = row * kStride + TilePlaces<T>::col() / 4;
#pragma unroll
    for (int i = 0; i < TilePlaces<T>::kCount / 4; ++i) words[first + i] = codes.words[i];
  }
};

/// Byte k of the result is byte `column` of words[k].
__device__ inline std::uint32_t column_of(const std::uint32_t (&words)[4], int column) {
  std::uint32_t result = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) result |= ((words[k] >> (column * 8)) & 0xFFU) << (k * 8);
  return result;
}

/// out [cols, rows] = the tile's codes turned round. A warp writes 128 neighbouring bytes of a row of out at
/// a time. aligned: rows is a multiple of 4 and out begins at one.
template <class T>
__device__ void store_transposed(const TileOrigin<T>& tile, const CodeTile& codes, std::uint8_t* out,
                                 bool aligned) {
  const int row = static_cast<int>(threadIdx.x % kWarp) * 4;
  for (int group = static_cast<int>(threadIdx.x / kWarp); group < kTile / 4; group += kTileThreads / kWarp) {
    std::uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = codes.words[(row + k) * CodeTile::kStride + group];
#pragma unroll
    for (int column = 0; column < 4; ++column) {
      const std::uint32_t turned = column_of(words, column);
      const int col = group * 4 + column;
      std::uint8_t* const target = out + (tile.col + col) * tile.rows + tile.row + row;
      if (aligned) {
        if (tile.has(row, col)) store(reinterpret_cast<std::uint32_t*>(target), turned);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (tile.has(row + k, col)) target[k] = static_cast<std::uint8_t>(turned >> (k * 8));
        }
      }
    }
  }
}

/// action(origin) for each tile that is the block's.
template <class T, class Action>
__device__ void for_each_tile(const T* x, std::int64_t rows, std::int64_t cols, Action action) {
  const bool vectors = cols % Pack<T>::kCount == 0 && is_aligned(x, 16);
  const std::int64_t across = (cols + kTile - 1) / kTile;
  const std::int64_t tiles = (rows + kTile - 1) / kTile * across;
  for (std::int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const std::int64_t row = i / across * kTile;
    const std::int64_t col = i % across * kTile;
    const auto part = [](std::int64_t left) { return static_cast<int>(left < kTile ? left : kTile); };
    action(TileOrigin<T>{x, rows, cols, row, col, part(rows - row), part(cols - col), vectors});
  }
}

inline std::int64_t tiles_of(std::int64_t rows, std::int64_t cols) {
  return (rows + kTile - 1) / kTile * ((cols + kTile - 1) / kTile);
}

}  // namespace amaxscope::cuda

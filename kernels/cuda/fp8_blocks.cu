// FP8 in blocks of 1 x 128, 128 x 1 and 128 x 128: a block of threads has 128 x 128 elements in registers.
#include "kernels/codec/scale.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace amaxscope::cuda {

namespace {

struct Shared {
  CodeTile codes;
  float row_scale[kTile];
  float column_scale[kTile];
  std::uint32_t of_row[kTile];
  std::uint32_t of_column[kTile];
  std::uint32_t of_all;
};

/// Largest magnitudes of the rows, of the columns and of the tile, to shared memory.
template <class T>
__device__ void find_amaxes(const Pack<T> (&packs)[TilePlaces<T>::kPasses], Shared& block) {
  using Places = TilePlaces<T>;
  if (threadIdx.x < kTile) block.of_column[threadIdx.x] = 0;
  if (threadIdx.x == 0) block.of_all = 0;
  __syncthreads();
  std::uint32_t of_column[Places::kCount];
  std::uint32_t of_all = 0;
#pragma unroll
  for (int i = 0; i < Places::kCount; ++i) of_column[i] = 0;
#pragma unroll
  for (int pass = 0; pass < Places::kPasses; ++pass) {
    std::uint32_t of_row = 0;
#pragma unroll
    for (int i = 0; i < Places::kCount; ++i) {
      const std::uint32_t key = amax_key(packs[pass][i]);
      of_row = larger(of_row, key);
      of_column[i] = larger(of_column[i], key);
    }
    of_row = largest_of_group<Places::kLanesPerRow>(of_row);
    if (Places::col() == 0) block.of_row[Places::row(pass)] = of_row;
    of_all = larger(of_all, of_row);
  }
#pragma unroll
  for (int i = 0; i < Places::kCount; ++i) {
    if constexpr (Places::kLanesPerRow < static_cast<int>(kWarp)) {
      of_column[i] = larger(of_column[i], __shfl_xor_sync(kAllLanes, of_column[i], Places::kLanesPerRow));
    }
    if (threadIdx.x % kWarp < static_cast<unsigned>(Places::kLanesPerRow)) {
      atomicMax(&block.of_column[Places::col() + i], of_column[i]);
    }
  }
  of_all = largest_of_group<kWarp>(of_all);
  if (threadIdx.x % kWarp == 0) atomicMax(&block.of_all, of_all);
  __syncthreads();
}

/// Scales of the rows and the columns, to shared memory and, inverted, to where they are stored.
template <class T>
__device__ void make_scales(const TileOrigin<T>& tile, const ScaleOptions& options, bool two_dimensional,
                            const BlockTarget<float>& rowwise, const BlockTarget<float>& columnwise,
                            Shared& block) {
  const std::int64_t i = tile.row / kTile;
  const std::int64_t j = tile.col / kTile;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kTile) {
    const float scale = scale_from_amax(two_dimensional ? block.of_all : block.of_row[thread], options).scale;
    block.row_scale[thread] = scale;
    if (rowwise.codes != nullptr) {
      if (!two_dimensional && thread < tile.height) {
        rowwise.scales[j * rowwise.scale_stride + tile.row + thread] = scale_inverse(scale);
      }
      if (two_dimensional && thread == 0) rowwise.scales[i * rowwise.scale_stride + j] = scale_inverse(scale);
    }
  } else if (thread < 2 * kTile) {
    const int col = thread - kTile;
    const float scale = scale_from_amax(two_dimensional ? block.of_all : block.of_column[col], options).scale;
    block.column_scale[col] = scale;
    if (columnwise.codes != nullptr) {
      if (!two_dimensional && col < tile.width) {
        columnwise.scales[i * columnwise.scale_stride + tile.col + col] = scale_inverse(scale);
      }
      if (two_dimensional && col == 0)
        columnwise.scales[j * columnwise.scale_stride + i] = scale_inverse(scale);
    }
  }
  __syncthreads();
}

template <DType kFormat, class T>
__global__ void __launch_bounds__(kTileThreads, 2)
    fp8_blocks_kernel(const T* x, std::int64_t rows, std::int64_t cols, ScaleOptions options,
                      bool two_dimensional, BlockTarget<float> rowwise, BlockTarget<float> columnwise) {
  using Places = TilePlaces<T>;
  Shared& block = shared<Shared>();
  const bool rowwise_aligned = cols % Places::kCount == 0 && is_aligned(rowwise.codes, Places::kCount);
  const bool columnwise_aligned = rows % 4 == 0 && is_aligned(columnwise.codes, 4);
  for_each_tile(x, rows, cols, [&](const TileOrigin<T>& tile) {
    Pack<T> packs[Places::kPasses];
    load_tile(tile, packs);
    find_amaxes<T>(packs, block);
    make_scales(tile, options, two_dimensional, rowwise, columnwise, block);
    if (rowwise.codes != nullptr) {
#pragma unroll
      for (int pass = 0; pass < Places::kPasses; ++pass) {
        const int row = Places::row(pass);
        const float scale = block.row_scale[row];
        store_row(tile, row, encode_pack<kFormat>(packs[pass], [&](int) { return scale; }), rowwise.codes,
                  rowwise_aligned);
      }
    }
    if (columnwise.codes != nullptr) {
      float scales[Places::kCount];
#pragma unroll
      for (int k = 0; k < Places::kCount; ++k) scales[k] = block.column_scale[Places::col() + k];
#pragma unroll
      for (int pass = 0; pass < Places::kPasses; ++pass) {
        block.codes.put(Places::row(pass),
                        encode_pack<kFormat>(packs[pass], [&](int k) { return scales[k]; }));
      }
      __syncthreads();
      store_transposed(tile, block.codes, columnwise.codes, columnwise_aligned);
    }
    // The next tile waits in find_amaxes and make_scales before it writes what is read here.
  });
}

}  // namespace

LaunchError launch_fp8_blocks(const Matrix& x, DType format, const ScaleOptions& options,
                              bool two_dimensional, const BlockTarget<float>& rowwise,
                              const BlockTarget<float>& columnwise, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  return with_format(format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(x.type, [&]<class T>(std::type_identity<T>) {
      return launch(fp8_blocks_kernel<kFormat, T>, dim3{blocks_for(tiles_of(x.rows, x.cols), 8), 1, 1},
                    kTileThreads, stream, static_cast<const T*>(x.data), x.rows, x.cols, options,
                    two_dimensional, rowwise, columnwise);
    });
  });
}

}  // namespace amaxscope::cuda

// Cast to FP8, and the same codes transposed, in one pass.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tile.cuh"

namespace amaxscope::cuda {

namespace {

template <DType kFormat, class T>
__global__ void __launch_bounds__(kTileThreads, 2)
    cast_transpose_kernel(const T* x, std::int64_t rows, std::int64_t cols, const float* scale,
                          std::uint8_t* codes, std::uint8_t* transposed) {
  using Places = TilePlaces<T>;
  struct Shared {
    CodeTile codes;
  };
  Shared& block = shared<Shared>();
  const float factor = load(scale);
  const bool codes_aligned = cols % Places::kCount == 0 && is_aligned(codes, Places::kCount);
  const bool transposed_aligned = rows % 4 == 0 && is_aligned(transposed, 4);
  for_each_tile(x, rows, cols, [&](const TileOrigin<T>& tile) {
    Pack<T> packs[Places::kPasses];
    load_tile(tile, packs);
#pragma unroll
    for (int pass = 0; pass < Places::kPasses; ++pass) {
      const Fp8Codes<T> encoded = encode_pack<kFormat>(packs[pass], [&](int) { return factor; });
      store_row(tile, Places::row(pass), encoded, codes, codes_aligned);
      block.codes.put(Places::row(pass), encoded);
    }
    __syncthreads();
    store_transposed(tile, block.codes, transposed, transposed_aligned);
    __syncthreads();  // before the next tile is put there
  });
}

}  // namespace

LaunchError launch_cast_transpose(const Matrix& x, DType format, const float* scale, std::uint8_t* codes,
                                  std::uint8_t* transposed, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  return with_format(format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(x.type, [&]<class T>(std::type_identity<T>) {
      return launch(cast_transpose_kernel<kFormat, T>, dim3{blocks_for(tiles_of(x.rows, x.cols), 8), 1, 1},
                    kTileThreads, stream, static_cast<const T*>(x.data), x.rows, x.cols, scale, codes,
                    transposed);
    });
  });
}

}  // namespace amaxscope::cuda

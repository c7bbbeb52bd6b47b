// MXFP8: a warp quantizes 32 x 32 elements, which it has in registers, in both directions.
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace amaxscope::cuda {

namespace {

constexpr int kBlock = 32;

/// Which elements of the 32 x 32 a lane has: kPasses packs, all in the same columns.
template <class T>
struct Places {
  static constexpr int kCount = Pack<T>::kCount;
  static constexpr int kLanesPerRow = kBlock / kCount;
  static constexpr int kRowsPerPass = static_cast<int>(kWarp) / kLanesPerRow;
  static constexpr int kPasses = kBlock / kRowsPerPass;
  __device__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ static int col() { return lane() % kLanesPerRow * kCount; }
  __device__ static int row(int pass) { return lane() / kLanesPerRow + pass * kRowsPerPass; }
};

template <DType kFormat>
__device__ std::uint8_t scale_byte(std::uint32_t amax) {
  constexpr float kReciprocal = 1.0F / fp8_max(kFormat);
  return encode_e8m0(std::bit_cast<float>(amax) * kReciprocal);
}

template <class T>
__device__ void store_codes_anywhere(std::uint8_t* to, const Fp8Codes<T>& codes) {
  if (is_aligned(to, Pack<T>::kCount)) {
    store_codes<T>(to, codes);
    return;
  }
#pragma unroll
  for (int i = 0; i < Pack<T>::kCount; ++i)
    to[i] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
}

template <DType kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    mxfp8_kernel(const T* x, std::int64_t rows, std::int64_t cols, bool two_dimensional,
                 BlockTarget<std::uint8_t> rowwise, BlockTarget<std::uint8_t> columnwise) {
  using P = Places<T>;
  const bool vectors = is_aligned(x, 16);
  const std::int64_t across = cols / kBlock;
  const std::int64_t blocks = rows / kBlock * across;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < blocks; i += warps) {
    const std::int64_t row = i / across * kBlock;
    const std::int64_t col = i % across * kBlock;
    const std::int64_t first = (row + P::row(0)) * cols + col + P::col();
    const std::int64_t step = P::kRowsPerPass * cols;
    Pack<T> packs[P::kPasses];
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      const T* const from = x + first + pass * step;
      if (vectors) {
        packs[pass] = load_pack(from);
      } else {
        packs[pass] = zero_pack<T>();
#pragma unroll
        for (int k = 0; k < P::kCount; ++k) packs[pass].set(k, from[k]);
      }
    }
    std::uint32_t of_row[P::kPasses];
    std::uint32_t of_column[P::kCount];
    std::uint32_t of_all = 0;
#pragma unroll
    for (int k = 0; k < P::kCount; ++k) of_column[k] = 0;
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      of_row[pass] = 0;
#pragma unroll
      for (int k = 0; k < P::kCount; ++k) {
        const std::uint32_t key = amax_key(packs[pass][k]);
        of_row[pass] = larger(of_row[pass], key);
        of_column[k] = larger(of_column[k], key);
      }
      of_row[pass] = largest_of_group<P::kLanesPerRow>(of_row[pass]);
      of_all = larger(of_all, of_row[pass]);
    }
    if (two_dimensional) of_all = largest_of_group<kWarp>(of_all);
    if (rowwise.codes != nullptr) {
#pragma unroll
      for (int pass = 0; pass < P::kPasses; ++pass) {
        const std::uint8_t byte = scale_byte<kFormat>(two_dimensional ? of_all : of_row[pass]);
        const float factor = e8m0_encode_multiplier(byte);
        store_codes_anywhere<T>(rowwise.codes + first + pass * step,
                                encode_pack<kFormat>(packs[pass], [&](int) { return factor; }));
        if (P::col() == 0) rowwise.scales[(row + P::row(pass)) * rowwise.scale_stride + col / kBlock] = byte;
      }
    }
    if (columnwise.codes != nullptr) {
      float factors[P::kCount];
      Fp8Codes<T> bytes{};
#pragma unroll
      for (int k = 0; k < P::kCount; ++k) {
#pragma unroll
        for (int lanes = P::kLanesPerRow; lanes < static_cast<int>(kWarp); lanes *= 2) {
          of_column[k] = larger(of_column[k], __shfl_xor_sync(kAllLanes, of_column[k], lanes));
        }
        const std::uint8_t byte = scale_byte<kFormat>(two_dimensional ? of_all : of_column[k]);
        factors[k] = e8m0_encode_multiplier(byte);
        bytes.words[k / 4] |= static_cast<std::uint32_t>(byte) << (k % 4 * 8);
      }
#pragma unroll
      for (int pass = 0; pass < P::kPasses; ++pass) {
        store_codes_anywhere<T>(columnwise.codes + first + pass * step,
                                encode_pack<kFormat>(packs[pass], [&](int k) { return factors[k]; }));
      }
      if (P::row(0) == 0) {
        store_codes_anywhere<T>(columnwise.scales + row / kBlock * columnwise.scale_stride + col + P::col(),
                                bytes);
      }
    }
  }
}

}  // namespace

LaunchError launch_mxfp8(const Matrix& x, DType format, bool two_dimensional,
                         const BlockTarget<std::uint8_t>& rowwise,
                         const BlockTarget<std::uint8_t>& columnwise, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  const std::int64_t warps = x.rows / kBlock * (x.cols / kBlock);
  return with_format(format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(x.type, [&]<class T>(std::type_identity<T>) {
      return launch(mxfp8_kernel<kFormat, T>, dim3{blocks_for((warps + 7) / 8, 8), 1, 1}, kThreads, stream,
                    static_cast<const T*>(x.data), x.rows, x.cols, two_dimensional, rowwise, columnwise);
    });
  });
}

}  // namespace amaxscope::cuda

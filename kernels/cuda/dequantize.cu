// FP8 and FP4 codes back to high precision.
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/cuda/group_tile.cuh"
#include "kernels/cuda/launch.cuh"

namespace amaxscope::cuda {

namespace {

/// As many codes as an output pack has elements.
template <class T>
__device__ Fp8Codes<T> load_codes(const std::uint8_t* from, bool aligned) {
  Fp8Codes<T> codes{};
  if (aligned) {
    if constexpr (Pack<T>::kCount == 4) {
      codes.words[0] = load(reinterpret_cast<const std::uint32_t*>(from));
    } else {
      const uint2 words = load(reinterpret_cast<const uint2*>(from));
      codes.words[0] = words.x;
      codes.words[1] = words.y;
    }
    return codes;
  }
#pragma unroll
  for (int i = 0; i < Pack<T>::kCount; ++i)
    codes.words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
  return codes;
}

template <DType kFormat, class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const std::uint8_t* codes, std::int64_t count, const float* scale_inv, T* out) {
  constexpr int kCount = Pack<T>::kCount;
  constexpr int kInFlight = 4;
  const float factor = load(scale_inv);
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto decode = [&](std::uint32_t code) {
    return round_to<T>(decode_fp8<kFormat>(static_cast<std::uint8_t>(code)) * factor);
  };
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out) % 16 / sizeof(T));
  std::int64_t head = past == 0 ? 0 : kCount - past;
  head = head < count ? head : count;
  const std::int64_t packs = (count - head) / kCount;
  const bool aligned = is_aligned(codes + head, kCount);
  const auto put = [&](const Fp8Codes<T>& loaded, std::int64_t pack) {
    Pack<T> result = zero_pack<T>();
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.set(i, decode((loaded.words[i / 4] >> (i % 4 * 8)) & 0xFFU));
    store_pack(out + head + pack * kCount, result);
  };
  std::int64_t pack = thread;
  for (; pack + (kInFlight - 1) * threads < packs; pack += kInFlight * threads) {
    Fp8Codes<T> loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      loaded[k] = load_codes<T>(codes + head + (pack + k * threads) * kCount, aligned);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) put(loaded[k], pack + k * threads);
  }
  for (; pack < packs; pack += threads) put(load_codes<T>(codes + head + pack * kCount, aligned), pack);
  if (thread < head) out[thread] = decode(codes[thread]);
  const std::int64_t tail = head + packs * kCount + thread;
  if (tail < count) out[tail] = decode(codes[tail]);
}

__device__ float stored_scale(const ScaledCodes& codes, std::int64_t stored_row, std::int64_t stored_col) {
  const std::int64_t row = codes.codes_transposed ? stored_col : stored_row;
  const std::int64_t col = codes.codes_transposed ? stored_row : stored_col;
  const std::int64_t down = row >> codes.scale_rows_log2;
  const std::int64_t across = col >> codes.scale_cols_log2;
  const std::int64_t index =
      codes.scales_transposed ? across * codes.scale_stride + down : down * codes.scale_stride + across;
  if (codes.scale_format == DType::kF32) return load(static_cast<const float*>(codes.scales) + index);
  const std::uint8_t byte = static_cast<const std::uint8_t*>(codes.scales)[index];
  if (codes.scale_format == DType::kE8M0) return decode_e8m0(byte);
  const float first_level = decode_fp8<DType::kE4M3>(byte);
  if (!codes.has_tensor_scale) return first_level;
  return (first_level * std::bit_cast<float>(load(codes.tensor_amax))) * codes.tensor_factor;
}

__device__ float value_of(const ScaledCodes& codes, std::int64_t index) {
  if (codes.format == DType::kE2M1)
    return decode_e2m1(static_cast<std::uint8_t>(codes.codes[index / 2] >> (index % 2 * 4)));
  if (codes.format == DType::kE4M3) return decode_fp8<DType::kE4M3>(codes.codes[index]);
  return decode_fp8<DType::kE5M2>(codes.codes[index]);
}

template <class T>
__global__ void __launch_bounds__(kGroupThreads) dequantize_blocks_kernel(ScaledCodes codes, T* out) {
  constexpr int kCount = Pack<T>::kCount;
  struct Shared {
    GroupTile tile;
  };
  GroupTile& tile = shared<Shared>().tile;
  const std::int64_t out_rows = codes.codes_transposed ? codes.stored_cols : codes.stored_rows;
  const std::int64_t out_cols = codes.codes_transposed ? codes.stored_rows : codes.stored_cols;
  const bool vectors = out_cols % kCount == 0 && is_aligned(out, 16);
  const bool one_scale = (codes.codes_transposed ? codes.scale_rows_log2 : codes.scale_cols_log2) >= 4;
  for_each_group_tile(codes.stored_rows, codes.stored_cols, [&](std::int64_t row, std::int64_t col) {
    const std::int64_t at = row + group_line();
    const std::int64_t from = col + group_first();
    float values[kGroup];
    const float first_scale =
        at < codes.stored_rows && from < codes.stored_cols ? stored_scale(codes, at, from) : 0.0F;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      values[i] = 0.0F;
      if (at >= codes.stored_rows || from + i >= codes.stored_cols) continue;
      const float scale = one_scale ? first_scale : stored_scale(codes, at, from + i);
      values[i] = value_of(codes, at * codes.stored_cols + from + i) * scale;
    }
    if (codes.rotated) rotate_back(values);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) tile.at(group_line(), group_first() + i) = values[i];
    __syncthreads();
    const std::int64_t out_row = codes.codes_transposed ? col : row;
    const std::int64_t out_col = codes.codes_transposed ? row : col;
#pragma unroll
    for (int k = 0; k < kGroupTile * kGroupTile / kCount / kGroupThreads; ++k) {
      const int place = (k * kGroupThreads + static_cast<int>(threadIdx.x)) * kCount;
      const int r = place / kGroupTile;
      const int c = place % kGroupTile;
      Pack<T> pack = zero_pack<T>();
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        pack.set(i, round_to<T>(codes.codes_transposed ? tile.at(c + i, r) : tile.at(r, c + i)));
      }
      T* const target = out + (out_row + r) * out_cols + out_col + c;
      if (vectors) {
        if (out_row + r < out_rows && out_col + c < out_cols) store_pack(target, pack);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (out_row + r < out_rows && out_col + c + i < out_cols) target[i] = round_to<T>(pack[i]);
      }
    }
    __syncthreads();  // before the next tile is put there
  });
}

}  // namespace

LaunchError launch_dequantize(const std::uint8_t* codes, DType format, std::int64_t count,
                              const float* scale_inv, void* out, DType type, Stream stream) {
  if (count == 0) return nullptr;
  return with_format(format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(type, [&]<class T>(std::type_identity<T>) {
      return launch(dequantize_kernel<kFormat, T>, grid_for_runs<T>(count, 1, 8), kThreads, stream, codes,
                    count, scale_inv, static_cast<T*>(out));
    });
  });
}

LaunchError launch_dequantize_blocks(const ScaledCodes& codes, void* out, DType type, Stream stream) {
  if (codes.stored_rows * codes.stored_cols == 0) return nullptr;
  return with_type(type, [&]<class T>(std::type_identity<T>) {
    return launch(dequantize_blocks_kernel<T>,
                  dim3{blocks_for(group_tiles_of(codes.stored_rows, codes.stored_cols), 8), 1, 1},
                  kGroupThreads, stream, codes, static_cast<T*>(out));
  });
}

}  // namespace amaxscope::cuda

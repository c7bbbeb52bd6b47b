// NVFP4: groups of 16 along a row or a column, or blocks of 16 x 16, under two levels of scales. A thread has
// a group. The same arithmetic in the same order as kernels/cpu/block_scale_nvfp4.cpp.
#include "kernels/codec/hadamard.hpp"
#include "kernels/codec/nvfp4_scale.hpp"
#include "kernels/codec/philox.hpp"
#include "kernels/cuda/group_tile.cuh"
#include "kernels/cuda/launch.cuh"

namespace amaxscope::cuda {

namespace {

constexpr int kBands = kGroupTile / kGroup;

using Group = float[kGroup];

__device__ std::uint32_t amax_of(const Group& values) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) largest = larger(largest, amax_key(values[i]));
  return largest;
}

/// What T's columnwise codes are made of: bf16 stays bf16 on its way.
template <class T>
__device__ void rotate_group(Group& values) {
  rotate(values);
  if constexpr (std::is_same_v<T, BF16>) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) values[i] = widen(round_to<BF16>(values[i]));
  }
}

/// 16 codes, the first in the lowest nibble.
struct Codes {
  std::uint32_t words[2];
};

struct Candidate {
  std::uint8_t scale;
  float multiplier;
};

class Encoder {
 public:
  __device__ Encoder(const Nvfp4Arguments& arguments, const std::uint32_t* amax, bool columnwise)
      : arguments_(arguments),
        amax_(std::bit_cast<float>(load(amax))),
        columnwise_(columnwise ? 1U : 0U),
        level_(nvfp4_tensor_level(amax_, arguments.scale_max)) {}

  /// The one candidate for the largest value of a block, or the first of two.
  __device__ Candidate candidate(std::uint32_t key) const {
    const float block_amax = std::bit_cast<float>(key);
    if (arguments_.four_over_six) return with_scale(block_amax / kFp4Max * level_.encode);
    return with_scale(block_amax * level_.block_factor);
  }
  /// The other: its largest value becomes 4, not 6.
  __device__ Candidate wider(std::uint32_t key) const {
    return with_scale(std::bit_cast<float>(key) / kFp4Max * level_.encode * 1.5F);
  }
  __device__ Candidate best_of_group(const Group& values) const {
    const std::uint32_t key = amax_of(values);
    const Candidate first = candidate(key);
    if (!arguments_.four_over_six) return first;
    const Candidate second = wider(key);
    return error(values, second) < error(values, first) ? second : first;
  }

  /// block: index in the order of the codes, for the random numbers.
  __device__ Codes encode(const Group& values, const Candidate& by, std::uint64_t block) const {
    Codes codes{};
    if (!arguments_.stochastic) {
#pragma unroll
      for (int i = 0; i < kGroup; i += 2) {
        codes.words[i / 8] |= encode_e2m1_pair(values[i] * by.multiplier, values[i + 1] * by.multiplier)
                              << (i % 8 * 4);
      }
      return codes;
    }
    const PhiloxCounter words = draw(block);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const auto random = static_cast<std::uint8_t>(words[static_cast<std::size_t>(i / 4)] >> (i % 4 * 8));
      codes.words[i / 8] |=
          static_cast<std::uint32_t>(encode_e2m1_stochastic(values[i] * by.multiplier, random))
          << (i % 8 * 4);
    }
    return codes;
  }

  /// Sum over the elements of what decoding under a candidate is off by.
  __device__ float error(const Group& values, const Candidate& by) const {
    const float scale = decode_fp8<DType::kE4M3>(by.scale);
    const float denominator = kFp4Max * arguments_.scale_max;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float decoded = decode_e2m1(encode_e2m1(values[i] * by.multiplier)) * scale * amax_ / denominator;
      const float difference = decoded - values[i];
      const float magnitude = difference < 0 ? -difference : difference;
      sum += arguments_.squared_error ? difference * difference : magnitude;
    }
    return sum;
  }

 private:
  __device__ Candidate with_scale(float value) const {
    const std::uint8_t scale = encode_block_scale(value);
    return {scale, nvfp4_encode_multiplier(scale, level_)};
  }
  __device__ PhiloxCounter draw(std::uint64_t block) const {
    return rounding_draw(arguments_.key, arguments_.call, columnwise_, block);
  }

  const Nvfp4Arguments& arguments_;
  float amax_;
  std::uint32_t columnwise_;
  Nvfp4TensorLevel level_;
};

/// A group at (row, col) of stored codes with `cols` to a row.
__device__ void write(const BlockTarget<std::uint8_t>& to, std::int64_t cols, std::int64_t row,
                      std::int64_t col, const Codes& codes, std::uint8_t scale) {
  std::uint8_t* const target = to.codes + (row * cols + col) / 2;
  if (is_aligned(target, 8)) {
    store(reinterpret_cast<uint2*>(target), uint2{codes.words[0], codes.words[1]});
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) target[i] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
  }
  to.scales[row * to.scale_stride + col / kGroup] = scale;
}
__device__ std::uint64_t block_index(std::int64_t cols, std::int64_t row, std::int64_t col) {
  return static_cast<std::uint64_t>((row * cols + col) / kGroup);
}

template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    groups_kernel(const T* x, std::int64_t rows, std::int64_t cols, Nvfp4Arguments arguments,
                  BlockTarget<std::uint8_t> rowwise, BlockTarget<std::uint8_t> columnwise) {
  struct Shared {
    GroupTile tile;
  };
  GroupTile& tile = shared<Shared>().tile;
  for_each_group_tile(rows, cols, [&](std::int64_t row, std::int64_t col) {
    fill_tile(tile, x, rows, cols, row, col);
    __syncthreads();
    Group values;
    if (rowwise.codes != nullptr && row + group_line() < rows && col + group_first() < cols) {
      const Encoder encoder(arguments, arguments.rowwise_amax, false);
      row_group(tile, values);
      const Candidate best = encoder.best_of_group(values);
      const std::int64_t at = row + group_line();
      const std::int64_t from = col + group_first();
      write(rowwise, cols, at, from, encoder.encode(values, best, block_index(cols, at, from)), best.scale);
    }
    if (columnwise.codes != nullptr && col + group_line() < cols && row + group_first() < rows) {
      const Encoder encoder(arguments, arguments.columnwise_amax, true);
      column_group(tile, values);
      if (arguments.rotate_columnwise) rotate_group<T>(values);
      const Candidate best = encoder.best_of_group(values);
      const std::int64_t at = col + group_line();
      const std::int64_t from = row + group_first();
      write(columnwise, rows, at, from, encoder.encode(values, best, block_index(rows, at, from)),
            best.scale);
    }
    __syncthreads();  // before the next tile is put there
  });
}

/// What the threads of a tile share when its blocks are 16 x 16.
struct Squares {
  GroupTile tile;
  std::uint32_t amax[kBands][kBands];
  float errors[2][kGroupTile][kBands];  ///< of each group, under each candidate
  Codes codes[kGroupTile][kBands];
};

/// The upper half of the first 2 * kHalf sums added to the lower half. Of known length, so that they stay in
/// registers.
template <int kHalf>
__device__ void add_halves(Group& sums) {
#pragma unroll
  for (int i = 0; i < kHalf; ++i) sums[i] += sums[i + kHalf];
}

/// Sum over the rows of a block, halves added to halves.
__device__ float error_of_block(const float (&errors)[kGroupTile][kBands], int band, int group) {
  Group sums;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) sums[i] = errors[band * kGroup + i][group];
  add_halves<8>(sums);
  add_halves<4>(sums);
  add_halves<2>(sums);
  add_halves<1>(sums);
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    squares_kernel(const T* x, std::int64_t rows, std::int64_t cols, Nvfp4Arguments arguments,
                   BlockTarget<std::uint8_t> rowwise, BlockTarget<std::uint8_t> columnwise) {
  Squares& block = shared<Squares>();
  const Encoder encoder(arguments, arguments.rowwise_amax, false);
  const int line = group_line();
  const int group = group_first() / kGroup;
  const int band = line / kGroup;
  for_each_group_tile(rows, cols, [&](std::int64_t row, std::int64_t col) {
    fill_tile(block.tile, x, rows, cols, row, col);
    if (threadIdx.x < kBands * kBands) block.amax[threadIdx.x / kBands][threadIdx.x % kBands] = 0;
    __syncthreads();
    Group values;
    row_group(block.tile, values);
    atomicMax(&block.amax[band][group], amax_of(values));
    __syncthreads();
    const std::uint32_t key = block.amax[band][group];
    Candidate best = encoder.candidate(key);
    if (arguments.four_over_six) {
      const Candidate second = encoder.wider(key);
      block.errors[0][line][group] = encoder.error(values, best);
      block.errors[1][line][group] = encoder.error(values, second);
      __syncthreads();
      if (error_of_block(block.errors[1], band, group) < error_of_block(block.errors[0], band, group))
        best = second;
    }
    const std::int64_t at = row + line;
    const std::int64_t from = col + group_first();
    const Codes codes = encoder.encode(values, best, block_index(cols, at, from));
    block.codes[line][group] = codes;
    if (rowwise.codes != nullptr && at < rows && from < cols)
      write(rowwise, cols, at, from, codes, best.scale);
    __syncthreads();
    // The thread's column is `line`, its rows are group_first() and on.
    if (columnwise.codes != nullptr && col + line < cols && row + group_first() < rows) {
      Codes turned{};
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const std::uint32_t word = block.codes[group_first() + i][line / kGroup].words[line % kGroup / 8];
        turned.words[i / 8] |= ((word >> (line % 8 * 4)) & 0xFU) << (i % 8 * 4);
      }
      const Candidate of_block = encoder.candidate(block.amax[group][band]);
      std::uint8_t scale = of_block.scale;
      if (arguments.four_over_six &&
          error_of_block(block.errors[1], group, band) < error_of_block(block.errors[0], group, band)) {
        scale = encoder.wider(block.amax[group][band]).scale;
      }
      write(columnwise, rows, col + line, row + group_first(), turned, scale);
    }
    __syncthreads();  // before the next tile is put there
  });
}

template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    rotated_amax_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::uint32_t* out) {
  struct Shared {
    GroupTile tile;
  };
  GroupTile& tile = shared<Shared>().tile;
  std::uint32_t largest = 0;
  for_each_group_tile(rows, cols, [&](std::int64_t row, std::int64_t col) {
    fill_tile(tile, x, rows, cols, row, col);  // zeros beyond the matrix stay zeros
    __syncthreads();
    Group values;
    column_group(tile, values);
    rotate_group<T>(values);
    largest = larger(largest, amax_of(values));
    __syncthreads();
  });
  largest = largest_of_group<kWarp>(largest);
  if (threadIdx.x % kWarp == 0 && largest != 0) atomicMax(out, largest);
}

}  // namespace

LaunchError launch_nvfp4(const Matrix& x, const Nvfp4Arguments& arguments,
                         const BlockTarget<std::uint8_t>& rowwise,
                         const BlockTarget<std::uint8_t>& columnwise, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  const dim3 grid{blocks_for(group_tiles_of(x.rows, x.cols), 8), 1, 1};
  return with_type(x.type, [&]<class T>(std::type_identity<T>) {
    return launch(arguments.two_dimensional ? squares_kernel<T> : groups_kernel<T>, grid, kGroupThreads,
                  stream, static_cast<const T*>(x.data), x.rows, x.cols, arguments, rowwise, columnwise);
  });
}

LaunchError launch_rotated_amax(const Matrix& x, std::uint32_t* out, Stream stream) {
  if (x.rows * x.cols == 0) return nullptr;
  return with_type(x.type, [&]<class T>(std::type_identity<T>) {
    return launch(rotated_amax_kernel<T>, dim3{blocks_for(group_tiles_of(x.rows, x.cols), 8), 1, 1},
                  kGroupThreads, stream, static_cast<const T*>(x.data), x.rows, x.cols, out);
  });
}

}  // namespace amaxscope::cuda

// The transpose of codes, and casts that make both.
#include <algorithm>
#include <array>

#define HWY_WANT_AVX3_DL
#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/transpose.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd/encode-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// One round of a transpose of 16 x 16 bytes in each 16-byte block of the vectors.
HWY_INLINE void interleave(const VByte (&in)[16], VByte (&out)[16]) {
  for (std::size_t i = 0; i < 8; ++i) {
    out[2 * i] = hn::InterleaveLower(Bytes(), in[i], in[i + 8]);
    out[2 * i + 1] = hn::InterleaveUpper(Bytes(), in[i], in[i + 8]);
  }
}

/// Block b of the result is the 16 bytes at in + b * distance.
HWY_INLINE VByte load_blocks(const std::uint8_t* in, std::size_t distance) {
  const Bytes d;
  auto result = hn::LoadDup128(d, in);
  if constexpr (kBytes >= 32) {
    result = hn::ConcatUpperLower(d, hn::LoadDup128(d, in + (kBytes / 32) * distance), result);
  }
  if constexpr (kBytes == 64) {
    const auto odd =
        hn::ConcatUpperLower(d, hn::LoadDup128(d, in + 3 * distance), hn::LoadDup128(d, in + distance));
    using Wide = hn::Repartition<std::uint64_t, Bytes>;
    alignas(64) static constexpr std::uint64_t kOdd[8] = {0, 0, ~0ULL, ~0ULL, 0, 0, ~0ULL, ~0ULL};
    const auto from_odd = hn::MaskFromVec(hn::LoadU(Wide(), kOdd));
    result = hn::BitCast(d, hn::IfThenElse(from_odd, hn::BitCast(Wide(), odd), hn::BitCast(Wide(), result)));
  }
  return result;
}

void transpose(const std::uint8_t* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
               std::uint8_t* out, std::size_t out_stride, Store store) {
  const bool streamed = store == Store::kStreamed && to_alignment(out) == 0 && out_stride % kBytes == 0;
  const std::size_t whole_rows = rows / kBytes * kBytes;
  const std::size_t whole_cols = cols / 16 * 16;
  for (std::size_t col = 0; col < whole_cols; col += 16) {
    for (std::size_t row = 0; row < whole_rows; row += kBytes) {
      VByte a[16];
      VByte b[16];
      for (std::size_t i = 0; i < 16; ++i) {
        a[i] = load_blocks(in + (row + i) * in_stride + col, 16 * in_stride);
      }
      interleave(a, b);
      interleave(b, a);
      interleave(a, b);
      interleave(b, a);
      std::uint8_t* to = out + col * out_stride + row;
      for (std::size_t i = 0; i < 16; ++i) {
        if (streamed) {
          hn::Stream(a[i], Bytes(), to + i * out_stride);
        } else {
          hn::StoreU(a[i], Bytes(), to + i * out_stride);
        }
      }
    }
  }
  kReferenceLoops.transpose(in + whole_rows * in_stride, in_stride, rows - whole_rows, whole_cols,
                            out + whole_rows, out_stride, store);
  kReferenceLoops.transpose(in + whole_cols, in_stride, rows, cols - whole_cols,
                            out + whole_cols * out_stride, out_stride, store);
  if (streamed) hwy::FlushStream();
}

// A column of a tile leaves as four whole lines, and only so many columns are written at a time. Tiles and
// the distance of fetching are the best of twenty pairs: larger tiles are slower in memory, and so are wider
// ones.
constexpr std::size_t kTileRows = 256;
constexpr std::size_t kTileCols = 256;
constexpr std::size_t kFetchAhead = 2048;  // bytes of a tile's rows
/// Rows of a tile are further apart than a power of two, or they would share the sets of the cache.
constexpr std::size_t kTileStride = kTileCols + 64;

/// One row of a tile, into the tile and to its place. Rows of a matrix are far apart, often by a power of
/// two: what comes next is fetched a few rows ahead, because more of them would not fit into the sets of L1.
template <class E, class T>
HWY_INLINE void encode_row(const E& encoder, const T* x, std::size_t count, const T* later,
                           std::uint8_t* tile, std::uint8_t* codes, bool streamed) {
  const Bytes d;
  const bool streams = streamed && to_alignment(codes) == 0;
  std::size_t i = 0;
  for (; i + kBytes <= count; i += kBytes) {
    prefetch_here<kBytes * sizeof(T)>(later + i);
    const auto made = encoder(x + i);
    hn::Store(made, d, tile + i);
    if (streams) {
      hn::Stream(made, d, codes + i);
    } else {
      hn::StoreU(made, d, codes + i);
    }
  }
  encode_few(encoder, x + i, count - i, tile + i);
  if (i < count) std::memcpy(codes + i, tile + i, count - i);
}

/// Tiles of codes that stay in L2 while they leave as columns.
template <DType kFormat, class T>
void encode_transpose(const T* x, std::size_t rows, std::size_t cols, float scale, std::uint8_t* codes,
                      std::uint8_t* transposed, std::size_t transposed_stride, Store store) {
  constexpr std::size_t kRowsAhead = kFetchAhead / (kTileCols * sizeof(T));
  const bool streamed = store == Store::kStreamed;
  alignas(64) std::array<std::uint8_t, kTileRows * kTileStride> tile;
  with_encoder<kFormat, T>(scale, rows * cols, [&](const auto& encoder) HWY_ATTR {
    for (std::size_t row = 0; row < rows; row += kTileRows) {
      const std::size_t height = std::min(kTileRows, rows - row);
      for (std::size_t col = 0; col < cols; col += kTileCols) {
        const std::size_t width = std::min(kTileCols, cols - col);
        for (std::size_t i = 0; i < height; ++i) {
          const std::size_t first = (row + i) * cols + col;
          encode_row(encoder, x + first, width, x + first + kRowsAhead * cols, tile.data() + i * kTileStride,
                     codes + first, streamed);
        }
        transpose(tile.data(), kTileStride, height, width, transposed + col * transposed_stride + row,
                  transposed_stride, store);
      }
    }
  });
}

template <DType kFormat, class T>
void put(FormatLoops<T>& loops) {
  loops.encode_transpose = encode_transpose<kFormat, T>;
}
void put_transpose(Loops& loops) {
  put<DType::kE4M3>(loops.f32.e4m3);
  put<DType::kE5M2>(loops.f32.e5m2);
  put<DType::kE4M3>(loops.bf16.e4m3);
  put<DType::kE5M2>(loops.bf16.e5m2);
  put<DType::kE4M3>(loops.f16.e4m3);
  put<DType::kE5M2>(loops.f16.e5m2);
  loops.transpose = transpose;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

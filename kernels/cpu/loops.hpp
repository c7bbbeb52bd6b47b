// The inner loops of the CPU kernels, one table of them for each instruction set. Private to kernels/cpu.
// The reference (reference_loops.cpp) is plain C++ and defines every result; the others (simd/, Highway) give
// the same bits for every input and every length. That includes the sums in double: element i of a block goes
// to lane i % kLanes, lanes are added from the first to the last, and blocks in their order.
// All loops are pure, never block and allocate nothing. Pointers need no alignment; counts may be 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/half.hpp"
#include "kernels/cpu/block_error_loops.hpp"
#include "kernels/cpu/nvfp4_loops.hpp"
#include "kernels/error_sums.hpp"
#include "kernels/tensor_stats.hpp"

namespace amaxscope::cpu {

inline constexpr std::size_t kLanes = 16;    ///< independent sums of doubles
inline constexpr std::size_t kBlock = 2048;  ///< elements whose sums are made together; they stay in L1

/// Whether codes are kept in the caches, or written past them because there are too many to stay there.
enum class Store : std::uint8_t { kCached, kStreamed };

/// What codes were made with, and what they are decoded with.
struct Scaling {
  float scale;
  float scale_inv;
};

/// Loops for one FP8 format.
template <class T>
struct FormatLoops {
  /// codes[i] = fp8(RN(x[i] * scale))
  void (*encode)(const T* x, std::size_t count, float scale, std::uint8_t* codes, Store store);
  /// The codes of a matrix and their transpose: transposed[col * transposed_stride + row].
  void (*encode_transpose)(const T* x, std::size_t rows, std::size_t cols, float scale, std::uint8_t* codes,
                           std::uint8_t* transposed, std::size_t transposed_stride, Store store);
  /// codes[i] = fp8(RN(x[i] * scales[i]))
  void (*encode_scaled)(const T* x, std::size_t count, const float* scales, std::uint8_t* codes);
  /// Blocks of 32 elements as quantize_mxfp8 makes them: scales[b] and the codes of each.
  void (*encode_mx)(const T* x, std::size_t blocks, std::uint8_t* codes, std::uint8_t* scales);
  /// x[i] = RN(value of codes[i] * scale_inv)
  void (*decode)(const std::uint8_t* codes, std::size_t count, float scale_inv, T* x, Store store);
  /// Adds the errors of one block of at most kBlock elements. codes: null for those that encode() would make.
  void (*add_error)(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
                    QuantizationError& sums);
};

template <class T>
struct ElementLoops {
  /// The largest magnitude as fp32 bits, NaN counted as 0.
  std::uint32_t (*amax)(const T* x, std::size_t count);
  /// The largest magnitude as fp32 bits; above those of Inf when there is a NaN.
  std::uint32_t (*largest)(const T* x, std::size_t count);
  /// keys[i] = the larger of keys[i] and the magnitude of x[i] as fp32 bits, NaN counted as 0.
  void (*column_amax)(const T* x, std::size_t count, std::uint32_t* keys);
  /// Moments of one block of 1 to kBlock elements.
  TensorMoments (*moments)(const T* x, std::size_t count, MomentOrder order);
  FormatLoops<T> e4m3;
  FormatLoops<T> e5m2;

  [[nodiscard]] constexpr const FormatLoops<T>& format(DType fp8) const noexcept {
    return fp8 == DType::kE4M3 ? e4m3 : e5m2;
  }
};

struct Loops {
  std::string_view name;  ///< "reference", "avx2", "avx512", "avx512_vbmi", "neon"
  ElementLoops<float> f32;
  ElementLoops<BF16> bf16;
  ElementLoops<F16> f16;
  /// out[col * out_stride + row] = in[row * in_stride + col]
  void (*transpose)(const std::uint8_t* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
                    std::uint8_t* out, std::size_t out_stride, Store store);
  const Nvfp4Loops* nvfp4;
  const BlockErrorLoops* block_errors;

  template <class T>
  [[nodiscard]] constexpr const ElementLoops<T>& of() const noexcept {
    if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else if constexpr (std::is_same_v<T, BF16>) {
      return bf16;
    } else {
      return f16;
    }
  }
};

/// The reference, then what this CPU can run, the widest last. For tests and measurements.
std::span<const Loops> all_loops();
/// The last of them: what the kernels call.
const Loops& loops();

/// Streaming pays when the codes would not be in the caches any more when somebody reads them.
constexpr Store store_for(std::size_t bytes_written) noexcept {
  return bytes_written >= (std::size_t{8} << 20) ? Store::kStreamed : Store::kCached;
}

extern const Loops kReferenceLoops;

}  // namespace amaxscope::cpu

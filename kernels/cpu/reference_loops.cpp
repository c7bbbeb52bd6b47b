#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/narrow.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/float_pattern.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/reference_sums.hpp"

namespace amaxscope::cpu {

namespace {

constexpr std::uint32_t kInfinity = 0x7F800000U;

std::uint32_t magnitude_of(float value) noexcept { return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU; }

template <class T>
std::uint32_t amax(const T* x, std::size_t count) {
  using Magnitude = typename FloatPattern<T>::Magnitude;
  Magnitude largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Magnitude value = magnitude(x[i]);
    value = value > FloatPattern<T>::kInfinity ? Magnitude{0} : value;
    largest = std::max(largest, value);
  }
  return std::bit_cast<std::uint32_t>(to_float(std::bit_cast<T>(largest)));
}

template <class T>
std::uint32_t largest(const T* x, std::size_t count) {
  using Magnitude = typename FloatPattern<T>::Magnitude;
  Magnitude result = 0;
  for (std::size_t i = 0; i < count; ++i) result = std::max(result, magnitude(x[i]));
  return std::bit_cast<std::uint32_t>(to_float(std::bit_cast<T>(result)));
}

template <class T>
void column_amax(const T* x, std::size_t count, std::uint32_t* keys) {
  for (std::size_t i = 0; i < count; ++i) {
    // Signed, because SSE2 has no unsigned maximum.
    const auto value = static_cast<std::int32_t>(magnitude_of(to_float(x[i])));
    const std::int32_t key = value > static_cast<std::int32_t>(kInfinity) ? 0 : value;
    keys[i] = static_cast<std::uint32_t>(std::max(static_cast<std::int32_t>(keys[i]), key));
  }
}

template <DType kFormat, class T>
void encode(const T* x, std::size_t count, float scale, std::uint8_t* codes, Store) {
  for (std::size_t i = 0; i < count; ++i) codes[i] = encode_fp8<kFormat>(to_float(x[i]) * scale);
}

void transpose(const std::uint8_t* in, std::size_t in_stride, std::size_t rows, std::size_t cols,
               std::uint8_t* out, std::size_t out_stride, Store) {
  for (std::size_t col = 0; col < cols; ++col) {
    for (std::size_t row = 0; row < rows; ++row) out[col * out_stride + row] = in[row * in_stride + col];
  }
}

template <DType kFormat, class T>
void encode_transpose(const T* x, std::size_t rows, std::size_t cols, float scale, std::uint8_t* codes,
                      std::uint8_t* transposed, std::size_t transposed_stride, Store store) {
  encode<kFormat>(x, rows * cols, scale, codes, store);
  transpose(codes, cols, rows, cols, transposed, transposed_stride, store);
}

template <DType kFormat, class T>
void encode_scaled(const T* x, std::size_t count, const float* scales, std::uint8_t* codes) {
  for (std::size_t i = 0; i < count; ++i) codes[i] = encode_fp8<kFormat>(to_float(x[i]) * scales[i]);
}

template <DType kFormat, class T>
void encode_mx(const T* x, std::size_t blocks, std::uint8_t* codes, std::uint8_t* scales) {
  constexpr std::size_t kMx = 32;
  constexpr float kReciprocal = 1.0F / fp8_max(kFormat);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint32_t largest_bits = amax(x + block * kMx, kMx);
    scales[block] = encode_e8m0(std::bit_cast<float>(largest_bits) * kReciprocal);
    encode<kFormat>(x + block * kMx, kMx, e8m0_encode_multiplier(scales[block]), codes + block * kMx,
                    Store::kCached);
  }
}

template <DType kFormat, class T>
void decode(const std::uint8_t* codes, std::size_t count, float scale_inv, T* x, Store) {
  // 256 codes: every product is made once. Short stretches make only their own.
  if (count < 256) {
    for (std::size_t i = 0; i < count; ++i) x[i] = narrow<T>(kFp8Values<kFormat>[codes[i]] * scale_inv);
    return;
  }
  std::array<T, 256> values;
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = narrow<T>(kFp8Values<kFormat>[code] * scale_inv);
  }
  for (std::size_t i = 0; i < count; ++i) x[i] = values[codes[i]];
}

template <DType kFormat, class T>
constexpr FormatLoops<T> format_loops() {
  return {.encode = encode<kFormat, T>,
          .encode_transpose = encode_transpose<kFormat, T>,
          .encode_scaled = encode_scaled<kFormat, T>,
          .encode_mx = encode_mx<kFormat, T>,
          .decode = decode<kFormat, T>,
          .add_error = reference::add_error<kFormat, T>};
}

template <class T>
constexpr ElementLoops<T> element_loops() {
  return {.amax = amax<T>,
          .largest = largest<T>,
          .column_amax = column_amax<T>,
          .moments = reference::moments<T>,
          .e4m3 = format_loops<DType::kE4M3, T>(),
          .e5m2 = format_loops<DType::kE5M2, T>()};
}

}  // namespace

constexpr Loops kReferenceLoops{.name = "reference",
                                .f32 = element_loops<float>(),
                                .bf16 = element_loops<BF16>(),
                                .f16 = element_loops<F16>(),
                                .transpose = transpose,
                                .nvfp4 = &kReferenceNvfp4,
                                .block_errors = &kReferenceBlockErrors};

}  // namespace amaxscope::cpu

// Element types of tensors. A value type; nothing here allocates or blocks.
#pragma once

#include <cstdint>
#include <string_view>

namespace amaxscope {

enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kE4M3,  ///< FP8 codes, 448 max, no infinities ("fn")
  kE5M2,  ///< FP8 codes, 57344 max
  kE8M0,  ///< power-of-two scale codes: byte b is 2^(b-127), 255 is NaN
  kE2M1,  ///< FP4 codes, two to a byte, element 2i in the low nibble
  kU8,
  kU32,
  kI32,
  kU64,
  kI64,
};

std::string_view to_string(DType dtype) noexcept;

/// Bits an element takes in memory (4 for kE2M1).
int bits_per_element(DType dtype) noexcept;

/// f64, f32, f16 or bf16: what a trainer computes in.
constexpr bool is_high_precision(DType dtype) noexcept {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
constexpr bool is_fp8(DType dtype) noexcept { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

}  // namespace amaxscope

#include "core/dtype.hpp"

namespace amaxscope {

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kE8M0:
      return "e8m0";
    case DType::kE2M1:
      return "e2m1";
    case DType::kU8:
      return "u8";
    case DType::kU32:
      return "u32";
    case DType::kI32:
      return "i32";
    case DType::kU64:
      return "u64";
    case DType::kI64:
      return "i64";
  }
  return "unknown";
}

int bits_per_element(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kU64:
    case DType::kI64:
      return 64;
    case DType::kF32:
    case DType::kU32:
    case DType::kI32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kU8:
      return 8;
    case DType::kE2M1:
      return 4;
  }
  return 0;
}

}  // namespace amaxscope

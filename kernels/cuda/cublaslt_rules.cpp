#include "kernels/cuda/cublaslt_rules.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

namespace amaxscope {

namespace {

constexpr std::int64_t kMultiple = 16;     // of the extents of narrow matrices, and of addresses in bytes
constexpr std::int64_t kFp4Multiple = 32;  // codes of 4 bits in 16 bytes, along the depth
constexpr int kAda = 89;
constexpr int kHopper = 90;
constexpr int kBlackwell = 100;
constexpr int kBlackwellGeForce = 120;
constexpr std::size_t kBlockVersion = 120900;

bool is_narrow_or_f32(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

bool is_aligned(const TensorView& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % static_cast<std::uintptr_t>(kMultiple) == 0;
}

bool both_e5m2(const GemmOperand& a, const GemmOperand& b) {
  return a.data.dtype() == DType::kE5M2 && b.data.dtype() == DType::kE5M2;
}

bool fits(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, std::int64_t depth) {
  return a.rows() % kMultiple == 0 && b.rows() % kMultiple == 0 && a.depth() % depth == 0 &&
         is_aligned(a.data) && is_aligned(b.data) && is_aligned(out);
}

std::string not_of_this_device(const LtDevice& device, std::string_view what) {
  return fmt::format("a device of compute capability {}.{} does not multiply {}", device.capability / 10,
                     device.capability % 10, what);
}

std::string why_not_fp8(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                        const MutableTensorView& out) {
  if (device.capability < kAda) return not_of_this_device(device, "FP8");
  if (both_e5m2(a, b)) return "cuBLASLt has no e5m2 times e5m2";
  if (a.transposed || b.transposed) return "cuBLASLt multiplies FP8 codes along their rows only";
  if (!fits(a, b, out, kMultiple))
    return "cuBLASLt wants FP8 matrices in multiples of 16, at multiples of 16 bytes";
  return {};
}

std::string why_not_mxfp8(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                          const MutableTensorView& out) {
  if (device.capability < kBlackwell) return not_of_this_device(device, "MXFP8");
  if (both_e5m2(a, b)) return "cuBLASLt has no e5m2 times e5m2";
  if (!fits(a, b, out, kMultiple))
    return "cuBLASLt wants MXFP8 matrices in multiples of 16, at multiples of 16 bytes";
  return {};
}

std::string why_not_nvfp4(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                          const MutableTensorView& out) {
  if (device.capability < kBlackwell) return not_of_this_device(device, "NVFP4");
  if (a.blocks->rotated != b.blocks->rotated) return "only one factor of NVFP4 is rotated";
  if (a.transposed || b.transposed) return "cuBLASLt multiplies NVFP4 codes along their rows only";
  if (!a.blocks->device_amax || !b.blocks->device_amax) return "NVFP4 codes without an amax on the device";
  if (!fits(a, b, out, kFp4Multiple)) {
    return "cuBLASLt wants NVFP4 matrices of a multiple of 16 rows and a depth in multiples of 32, at "
           "multiples of 16 bytes";
  }
  return {};
}

std::string why_not_fp8_blocks(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                               const MutableTensorView& out) {
  if (device.capability != kHopper) return not_of_this_device(device, "FP8 blocks");
  if (scaling_of(a) == LtScaling::kFp8Blocks2d && scaling_of(b) == LtScaling::kFp8Blocks2d)
    return "cuBLASLt does not multiply FP8 blocks of 128 x 128 by others of 128 x 128";
  if (!is_aligned(a.blocks->scales) || !is_aligned(b.blocks->scales))
    return "cuBLASLt wants the scales of FP8 blocks at multiples of 16 bytes";
  return why_not_fp8(device, a, b, out);
}

std::string why_not_blocks(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                           const MutableTensorView& out) {
  const LtScaling first = scaling_of(a);
  const LtScaling second = scaling_of(b);
  const auto is_fp8_blocks = [](LtScaling scaling) {
    return scaling == LtScaling::kFp8Blocks1d || scaling == LtScaling::kFp8Blocks2d;
  };
  if (first == LtScaling::kBlocksOtherwise || second == LtScaling::kBlocksOtherwise)
    return "block-scaled codes whose scales do not run along the depth of the product";
  if (first != second && !(is_fp8_blocks(first) && is_fp8_blocks(second)))
    return "block-scaled codes times others of another format";
  if (device.version < kBlockVersion) {
    return fmt::format("cuBLASLt {}.{} does not multiply block-scaled codes, 12.9 does",
                       device.version / 10000, device.version / 100 % 100);
  }
  if (first == LtScaling::kMxfp8) return why_not_mxfp8(device, a, b, out);
  if (first == LtScaling::kNvfp4) return why_not_nvfp4(device, a, b, out);
  return why_not_fp8_blocks(device, a, b, out);
}

}  // namespace

LtScaling scaling_of(const GemmOperand& operand) {
  if (!operand.blocks) return is_fp8(operand.data.dtype()) ? LtScaling::kTensor : LtScaling::kNone;
  const BlockLayout& layout = operand.blocks->layout;
  const bool as_quantized = operand.transposed == layout.codes_transposed;  // the depth is K, else M
  const std::int64_t along = as_quantized ? layout.scale_cols : layout.scale_rows;
  const std::int64_t across = as_quantized ? layout.scale_rows : layout.scale_cols;
  // FP8 blocks are taken as they are stored: stretches first or, of squares, the depth first.
  const bool depth_first = layout.scales_transposed != as_quantized;
  if (is_fp8(layout.format) && layout.scale_format == DType::kE8M0 && along == 32 && across == 1)
    return LtScaling::kMxfp8;
  if (layout.format == DType::kE2M1 && layout.scale_format == DType::kE4M3 && along == 16 && across == 1)
    return LtScaling::kNvfp4;
  if (is_fp8(layout.format) && layout.scale_format == DType::kF32 && along == 128) {
    if (across == 1 && !depth_first) return LtScaling::kFp8Blocks1d;
    if (across == 128 && depth_first) return LtScaling::kFp8Blocks2d;
  }
  return LtScaling::kBlocksOtherwise;
}

bool only_along_rows(const LtDevice& device) {
  return device.capability < kBlackwell || device.capability >= kBlackwellGeForce;
}

std::string why_not(const LtDevice& device, const GemmOperand& a, const GemmOperand& b,
                    const MutableTensorView& out, float beta) {
  if (!is_narrow_or_f32(out.dtype())) return fmt::format("no {} results on a device", to_string(out.dtype()));
  if (beta != 0.0F && out.dtype() != DType::kF32)
    return fmt::format("accumulation into {}; it needs f32", to_string(out.dtype()));
  const DType type_a = a.data.dtype();
  const DType type_b = b.data.dtype();
  if (a.blocks && b.blocks) return why_not_blocks(device, a, b, out);
  if (a.blocks || b.blocks) return "block-scaled codes times others of another format";
  if (is_fp8(type_a) && is_fp8(type_b)) return why_not_fp8(device, a, b, out);
  if (type_a != type_b) return fmt::format("{} times {}", to_string(type_a), to_string(type_b));
  if (!is_narrow_or_f32(type_a)) return fmt::format("no products of {} on a device", to_string(type_a));
  if (out.dtype() != type_a && out.dtype() != DType::kF32)
    return fmt::format("a product of {} in {}", to_string(type_a), to_string(out.dtype()));
  return {};
}

}  // namespace amaxscope

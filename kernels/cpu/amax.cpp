#include "kernels/amax.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "amax";

// Magnitudes are compared as signed integers: non-negative patterns order the same, and SSE2 has no unsigned
// 32-bit maximum. Patterns above Inf's are NaN and count as 0.
template <class Bits, Bits kInfinity>
Bits largest_magnitude(const void* data, std::int64_t count) {
  const auto* bits = static_cast<const std::byte*>(data);
  constexpr auto kMask = std::numeric_limits<Bits>::max();
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits value;
    std::memcpy(&value, bits + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    value = static_cast<Bits>(value & kMask);
    value = value > kInfinity ? Bits{0} : value;
    largest = std::max(largest, value);
  }
  return largest;
}

std::uint32_t largest_bits(const float* data, std::int64_t count) {
  return static_cast<std::uint32_t>(largest_magnitude<std::int32_t, 0x7F800000>(data, count));
}
std::uint32_t largest_bits(const BF16* data, std::int64_t count) {
  return static_cast<std::uint32_t>(largest_magnitude<std::int16_t, 0x7F80>(data, count)) << 16;
}
std::uint32_t largest_bits(const F16* data, std::int64_t count) {
  const auto bits = static_cast<std::uint16_t>(largest_magnitude<std::int16_t, 0x7C00>(data, count));
  return std::bit_cast<std::uint32_t>(to_float(F16{bits}));
}

}  // namespace

std::uint32_t amax_bits(const TensorView& x) {
  cpu::require_cpu(kOperation, "x", x);
  return cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    std::uint32_t largest = 0;
    cpu::for_each_run<T>(x, [&](const T* data, std::int64_t count, std::int64_t) {
      largest = std::max(largest, largest_bits(data, count));
    });
    return largest;
  });
}

void amax(const TensorView& x, const MutableTensorView& out, bool accumulate) {
  cpu::require_contiguous(kOperation, "out", out);
  AMAXSCOPE_CHECK(out.dtype() == DType::kU32 && out.numel() == 1, ErrorCode::kTensor,
                  "{}: out is {} of shape {}, wanted one u32", kOperation, to_string(out.dtype()),
                  to_string(out.shape()));
  const std::uint32_t largest = amax_bits(x);
  auto& result = *cpu::data_of<std::uint32_t>(out);
  result = accumulate ? std::max(result, largest) : largest;
}

}  // namespace amaxscope

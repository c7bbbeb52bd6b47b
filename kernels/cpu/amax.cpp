#include "kernels/amax.hpp"

#include <algorithm>
#include <array>

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "amax";
constexpr std::size_t kUnit = 1 << 14;  // elements that are not divided

}  // namespace

std::uint32_t amax_bits(const TensorView& x) {
  cpu::require_cpu(kOperation, "x", x);
  return cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().amax;
    std::array<std::uint32_t, cpu::kMaxPieces> largest{};
    cpu::for_each_run<T>(x, [&](const T* data, std::int64_t count, std::int64_t) {
      cpu::over_elements(x, static_cast<std::size_t>(count), kUnit,
                         [&](std::size_t piece, std::size_t first, std::size_t length) {
                           largest[piece] = std::max(largest[piece], loop(data + first, length));
                         });
    });
    return *std::ranges::max_element(largest);
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

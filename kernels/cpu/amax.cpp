#include "kernels/amax.hpp"

#include <algorithm>

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/loops.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "amax";

}  // namespace

std::uint32_t amax_bits(const TensorView& x) {
  cpu::require_cpu(kOperation, "x", x);
  return cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    std::uint32_t largest = 0;
    cpu::for_each_run<T>(x, [&](const T* data, std::int64_t count, std::int64_t) {
      largest = std::max(largest, cpu::loops().of<T>().amax(data, static_cast<std::size_t>(count)));
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

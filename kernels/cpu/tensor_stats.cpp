#include "kernels/tensor_stats.hpp"

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/blocks.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

CentredMoments recentred(const TensorMoments& moments, double shift) noexcept {
  const auto n = static_cast<double>(moments.finite());
  if (n == 0) return {};
  const double square = shift * shift;
  return {.m2 = moments.m2 + n * square,
          .m3 = moments.m3 + 3 * shift * moments.m2 + n * square * shift,
          .m4 = moments.m4 + 4 * shift * moments.m3 + 6 * square * moments.m2 + n * square * square};
}

TensorMoments tensor_stats(const TensorView& x, MomentOrder order) {
  constexpr std::string_view kOperation = "tensor_stats";
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->tensor_stats(x, order);
  require_host(kOperation, "x", x);
  TensorMoments result;
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto loop = cpu::loops().of<T>().moments;
    cpu::for_each_run<T>(x, [&](const T* values, std::int64_t count, std::int64_t) {
      cpu::over_blocks<TensorMoments>(
          x, static_cast<std::size_t>(count),
          [&](std::size_t first, std::size_t length) { return loop(values + first, length, order); },
          [&](const TensorMoments& block) { result.merge(block); });
    });
  });
  return result;
}

}  // namespace amaxscope

#include "kernels/tensor_stats.hpp"

#include <algorithm>

#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/loops.hpp"

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
  constexpr auto kBlock = static_cast<std::int64_t>(cpu::kBlock);
  cpu::require_cpu(kOperation, "x", x);
  TensorMoments result;
  cpu::with_compute_type(kOperation, "x", x, [&]<class T>(std::type_identity<T>) {
    const auto& loops = cpu::loops().of<T>();
    cpu::for_each_run<T>(x, [&](const T* values, std::int64_t count, std::int64_t) {
      for (std::int64_t first = 0; first < count; first += kBlock) {
        const auto length = static_cast<std::size_t>(std::min(kBlock, count - first));
        result.merge(loops.moments(values + first, length, order));
      }
    });
  });
  return result;
}

}  // namespace amaxscope

#include "kernels/amax.hpp"

#include <algorithm>
#include <array>

#include "core/device_backend.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/pieces.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "amax";
constexpr std::size_t kUnit = 1 << 14;  // elements that are not divided

}  // namespace

std::uint32_t amax_bits(const TensorView& x) {
  if (x.device().kind != DeviceKind::kCpu) {
    Tensor largest = Tensor::beside(x, DType::kU32, {1});
    amax(x, largest);
    return to_host(largest).values<std::uint32_t>()[0];
  }
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
  if (DeviceKernels* device = device_kernels(kOperation, x)) return device->amax(x, out, accumulate);
  cpu::require_contiguous(kOperation, "out", out);
  AMAXSCOPE_CHECK(out.dtype() == DType::kU32 && out.numel() == 1, ErrorCode::kTensor,
                  "{}: out is {} of shape {}, wanted one u32", kOperation, to_string(out.dtype()),
                  to_string(out.shape()));
  const std::uint32_t largest = amax_bits(x);
  auto& result = *cpu::data_of<std::uint32_t>(out);
  result = accumulate ? std::max(result, largest) : largest;
}

void scale_of_amax(const TensorView& amax, const ScaleOptions& options, const MutableTensorView& scale,
                   const MutableTensorView& scale_inv) {
  constexpr std::string_view kName = "scale_of_amax";
  if (DeviceKernels* device = device_kernels(kName, amax))
    return device->scale_of_amax(amax, options, scale, scale_inv);
  cpu::require_contiguous(kName, "amax", amax);
  AMAXSCOPE_CHECK(amax.dtype() == DType::kU32 && amax.numel() == 1, ErrorCode::kTensor,
                  "{}: amax is {} of shape {}, wanted one u32", kName, to_string(amax.dtype()),
                  to_string(amax.shape()));
  static_cast<void>(cpu::read_scalar(kName, "scale", scale));
  static_cast<void>(cpu::read_scalar(kName, "scale_inv", scale_inv));
  const float made = scale_from_amax(*cpu::data_of<std::uint32_t>(amax), options).scale;
  *cpu::data_of<float>(scale) = made;
  *cpu::data_of<float>(scale_inv) = scale_inverse(made);
}

}  // namespace amaxscope

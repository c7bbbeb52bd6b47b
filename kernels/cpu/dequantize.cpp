#include "kernels/dequantize.hpp"

#include <array>

#include "kernels/codec/fp8.hpp"
#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"

namespace amaxscope {

void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv, const MutableTensorView& out) {
  constexpr std::string_view kOperation = "dequantize_fp8";
  cpu::require_contiguous(kOperation, "codes", codes);
  cpu::require_shape(kOperation, "out", out, codes.shape());
  const float factor = cpu::read_scalar(kOperation, "scale_inv", scale_inv);
  cpu::with_fp8_format(kOperation, "codes", codes.dtype(),
                       [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
                         cpu::with_compute_type(kOperation, "out", out, [&]<class T>(std::type_identity<T>) {
                           // 256 codes: every product is made once.
                           std::array<T, 256> values;
                           for (std::size_t code = 0; code < values.size(); ++code) {
                             values[code] = narrow<T>(kFp8Values<kFormat>[code] * factor);
                           }
                           const auto* in = cpu::data_of<std::uint8_t>(codes);
                           T* result = cpu::data_of<T>(out);
                           for (std::int64_t i = 0; i < codes.numel(); ++i) result[i] = values[in[i]];
                         });
                       });
}

}  // namespace amaxscope

#include "runtime/quantizers/mxfp8.hpp"

#include "core/error.hpp"
#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

Mxfp8Quantizer::Mxfp8Quantizer(DType format, bool two_dimensional, std::string name)
    : BlockQuantizer(std::move(name)), format_(format), two_dimensional_(two_dimensional) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage, "{}: mxfp8 with codes of {}; allowed are e4m3 and e5m2",
                  tensor_name(), to_string(format));
}

std::shared_ptr<BlockScaledTensor> Mxfp8Quantizer::make(const TensorView& x, Usage usage) {
  return make_block_scaled(x, RecipeKind::kMxfp8, usage, {mxfp8_layout(format_, false, two_dimensional_)},
                           {mxfp8_layout(format_, true, two_dimensional_)},
                           [&](const TensorView& matrix, const BlockOutputs& out) {
                             quantize_mxfp8(matrix, two_dimensional_, out);
                           });
}

}  // namespace amaxscope

#include "runtime/quantizers/mxfp8.hpp"

#include "core/error.hpp"
#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

Mxfp8Quantizer::Mxfp8Quantizer(DType format, bool two_dimensional, std::string name)
    : format_(format), two_dimensional_(two_dimensional), name_(std::move(name)) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage, "{}: mxfp8 with codes of {}; allowed are e4m3 and e5m2",
                  name_, to_string(format));
}

std::shared_ptr<BlockScaledTensor> Mxfp8Quantizer::make(const TensorView& x, Usage usage) const {
  require_whole_blocks(x.shape(), kMxfp8Block, RecipeKind::kMxfp8, name_);
  return make_block_scaled(x, RecipeKind::kMxfp8, usage, {mxfp8_layout(format_, false, two_dimensional_)},
                           {mxfp8_layout(format_, true, two_dimensional_)},
                           [&](const TensorView& matrix, const BlockOutputs& out) {
                             quantize_mxfp8(matrix, two_dimensional_, out);
                           });
}

std::shared_ptr<QuantizedTensor> Mxfp8Quantizer::quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment&) {
  return make(x, usage);
}

void Mxfp8Quantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment&) {
  BlockScaledTensor& tensor = require_block_scaled(target, x.shape(), RecipeKind::kMxfp8, name_);
  tensor = std::move(*make(x, tensor.usage()));
}

}  // namespace amaxscope

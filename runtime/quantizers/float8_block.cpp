#include "runtime/quantizers/float8_block.hpp"

#include "core/error.hpp"
#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

Float8BlockQuantizer::Float8BlockQuantizer(DType format, bool two_dimensional, BlockScalingOptions options,
                                           std::string name)
    : format_(format), two_dimensional_(two_dimensional), options_(options), name_(std::move(name)) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage,
                  "{}: block scaling with codes of {}; allowed are e4m3 and e5m2", name_, to_string(format));
}

std::shared_ptr<BlockScaledTensor> Float8BlockQuantizer::make(const TensorView& x, Usage usage) const {
  const Fp8BlockOptions options{.power_of_two = options_.power_of_two, .epsilon = options_.epsilon};
  return make_block_scaled(x, RecipeKind::kBlock, usage, {fp8_block_layout(format_, false, two_dimensional_)},
                           {fp8_block_layout(format_, true, two_dimensional_)},
                           [&](const TensorView& matrix, const BlockOutputs& out) {
                             quantize_fp8_blocks(matrix, options, two_dimensional_, out);
                           });
}

std::shared_ptr<QuantizedTensor> Float8BlockQuantizer::quantize(const TensorView& x, Usage usage,
                                                                const TensorMoment&) {
  return make(x, usage);
}

void Float8BlockQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment&) {
  BlockScaledTensor& tensor = require_block_scaled(target, x.shape(), RecipeKind::kBlock, name_);
  tensor = std::move(*make(x, tensor.usage()));
}

}  // namespace amaxscope

#include "runtime/quantizers/float8_block.hpp"

#include "core/error.hpp"
#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

Float8BlockQuantizer::Float8BlockQuantizer(DType format, bool two_dimensional, BlockScalingOptions options,
                                           std::string name)
    : BlockQuantizer(std::move(name)), format_(format), two_dimensional_(two_dimensional), options_(options) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kUsage,
                  "{}: block scaling with codes of {}; allowed are e4m3 and e5m2", tensor_name(),
                  to_string(format));
}

std::shared_ptr<BlockScaledTensor> Float8BlockQuantizer::make(const TensorView& x, Usage usage) {
  const Fp8BlockOptions options{.power_of_two = options_.power_of_two, .epsilon = options_.epsilon};
  return make_block_scaled(x, RecipeKind::kBlock, usage, {fp8_block_layout(format_, false, two_dimensional_)},
                           {fp8_block_layout(format_, true, two_dimensional_)},
                           [&](const TensorView& matrix, const BlockOutputs& out) {
                             quantize_fp8_blocks(matrix, options, two_dimensional_, out);
                           });
}

}  // namespace amaxscope

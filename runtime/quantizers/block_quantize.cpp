#include "runtime/quantizers/block_quantize.hpp"

#include "core/error.hpp"

namespace amaxscope {

namespace {

BlockScaledCodes room_for(const BlockSide& side, bool wanted, const TensorView& x) {
  BlockScaledCodes result;
  result.layout = side.layout;
  result.tensor_scale = side.tensor_scale;
  result.rotated = side.rotated;
  result.device_amax = side.device_amax;
  if (!wanted) return result;
  result.codes = Tensor::beside(x, side.layout.format, side.layout.codes_shape(x.rows(), x.cols()));
  result.scales = Tensor::beside(x, side.layout.scale_format, side.layout.scales_shape(x.rows(), x.cols()));
  return result;
}

std::optional<BlockOutput> output_to(BlockScaledCodes& codes) {
  if (!codes.defined()) return std::nullopt;
  return BlockOutput{codes.codes, codes.scales};
}

}  // namespace

std::shared_ptr<BlockScaledTensor> make_block_scaled(const TensorView& x, RecipeKind recipe, Usage usage,
                                                     const BlockSide& rowwise, const BlockSide& columnwise,
                                                     const BlockKernel& kernel) {
  AMAXSCOPE_CHECK(usage.rowwise || usage.columnwise, ErrorCode::kUsage,
                  "a tensor of shape {} is quantized in no direction", to_string(x.shape()));
  BlockScaledCodes row = room_for(rowwise, usage.rowwise, x);
  BlockScaledCodes column = room_for(columnwise, usage.columnwise, x);
  kernel(x.reshaped({x.rows(), x.cols()}), {.rowwise = output_to(row), .columnwise = output_to(column)});
  return std::make_shared<BlockScaledTensor>(x.shape(), recipe, std::move(row), std::move(column));
}

std::shared_ptr<BlockScaledTensor> BlockQuantizer::checked_make(const TensorView& x, Usage usage) {
  const std::int64_t multiple = required_multiple(recipe());
  const Shape& shape = x.shape();
  AMAXSCOPE_CHECK(
      shape.rows() % multiple == 0 && shape.cols() % multiple == 0, ErrorCode::kTensor,
      "{}: shape {} is a matrix of {} x {}; recipe {} needs multiples of {} in both, so pad the tensor, "
      "change "
      "the sizes of the model or batch (or the number of tensor-parallel ranks), or leave the layer in high "
      "precision",
      name_.empty() ? "a tensor" : name_, to_string(shape), shape.rows(), shape.cols(), to_string(recipe()),
      multiple);
  return make(x, usage);
}

std::shared_ptr<QuantizedTensor> BlockQuantizer::quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment&) {
  return checked_make(x, usage);
}

void BlockQuantizer::update(const TensorView& x, QuantizedTensor& target, const TensorMoment&) {
  auto* const tensor = dynamic_cast<BlockScaledTensor*>(&target);
  AMAXSCOPE_CHECK(tensor != nullptr && tensor->recipe() == recipe(), ErrorCode::kUsage,
                  "{}: only what recipe {} made can be updated with its codes", name_, to_string(recipe()));
  AMAXSCOPE_CHECK(tensor->shape() == x.shape(), ErrorCode::kTensor,
                  "{}: a tensor of shape {} updated from {}", name_, to_string(tensor->shape()),
                  to_string(x.shape()));
  *tensor = std::move(*checked_make(x, tensor->usage()));
}

}  // namespace amaxscope

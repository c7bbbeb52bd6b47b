#include "runtime/quantizers/nvfp4.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <string_view>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "core/fnv.hpp"
#include "kernels/codec/philox.hpp"
#include "runtime/quantizers/block_quantize.hpp"

namespace amaxscope {

namespace {

/// The first two words of the generator itself, with the seed as key and the name's hash as counter.
std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept {
  const std::uint64_t hash = Fnv1a().add(name).value();
  const PhiloxCounter words =
      philox4x32_10({static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return words[0] | std::uint64_t{words[1]} << 32;
}

}  // namespace

Nvfp4Quantizer::Nvfp4Quantizer(Nvfp4Usage usage, Nvfp4Options options, ReduceAmaxes reduce_amaxes,
                               std::string name)
    : BlockQuantizer(std::move(name)),
      usage_(usage),
      options_(options),
      reduce_amaxes_(std::move(reduce_amaxes)),
      stream_key_(stream_key(options.seed, tensor_name())) {
  AMAXSCOPE_CHECK(!usage.two_dimensional || !usage.rotate_columnwise, ErrorCode::kUsage,
                  "{}: nvfp4 blocks of 16 x 16 are not rotated", tensor_name());
  AMAXSCOPE_CHECK(
      !usage.four_over_six || (!usage.rotate_columnwise && !usage.stochastic_rounding), ErrorCode::kUsage,
      "{}: nvfp4's four over six goes without the random Hadamard transform and without stochastic "
      "rounding",
      tensor_name());
  AMAXSCOPE_CHECK(options.four_over_six_scale_max == 448 || options.four_over_six_scale_max == 256,
                  ErrorCode::kUsage,
                  "{}: nvfp4's four over six with a largest scale of {}; 448 and 256 exist", tensor_name(),
                  options.four_over_six_scale_max);
}

std::shared_ptr<BlockScaledTensor> Nvfp4Quantizer::make(const TensorView& x, Usage usage) {
  const TensorView matrix = x.reshaped({x.rows(), x.cols()});
  auto amaxes = std::make_shared<Tensor>(Tensor::beside(x, DType::kU32, {2}));
  const bool on_device = x.device().kind != DeviceKind::kCpu;
  if (on_device) {
    nvfp4_amaxes(matrix, usage_.rotate_columnwise, *amaxes);
  } else {
    std::ranges::copy(nvfp4_amaxes(matrix, usage.rowwise, usage.columnwise, usage_.rotate_columnwise),
                      amaxes->values<std::uint32_t>().begin());
  }
  if (reduce_amaxes_) reduce_amaxes_(*amaxes);
  Nvfp4Cast cast{.two_dimensional = usage_.two_dimensional, .rotate_columnwise = usage_.rotate_columnwise};
  if (!on_device) {
    cast.rowwise_amax = std::bit_cast<float>(amaxes->values<std::uint32_t>()[0]);
    cast.columnwise_amax = std::bit_cast<float>(amaxes->values<std::uint32_t>()[1]);
  }
  const auto amax_of = [&](std::int64_t direction) {
    return on_device ? DeviceNumbers{amaxes, direction} : DeviceNumbers{};
  };
  AMAXSCOPE_CHECK(
      !on_device || !usage_.stochastic_rounding || !backend_of("nvfp4", x).capturing(x.stream()),
      ErrorCode::kUsage,
      "{}: stochastic rounding in a step that is captured into a CUDA graph would take the same random "
      "numbers in every replay; switch it off, or quantize this tensor outside of the graph",
      tensor_name());
  if (usage_.stochastic_rounding) cast.stochastic = StochasticRounding{.key = stream_key_, .call = calls_++};
  if (usage_.four_over_six) {
    cast.four_over_six = options_.four_over_six_error == FourOverSixError::kSquared
                             ? FourOverSix::kSquaredError
                             : FourOverSix::kAbsoluteError;
    cast.scale_max = static_cast<float>(options_.four_over_six_scale_max);
  }
  const bool two_dimensional = usage_.two_dimensional;
  return make_block_scaled(x, RecipeKind::kNvfp4, usage,
                           {.layout = nvfp4_layout(false, two_dimensional),
                            .tensor_scale = nvfp4_tensor_scale(cast.rowwise_amax, cast.scale_max),
                            .device_amax = amax_of(0)},
                           {.layout = nvfp4_layout(true, two_dimensional),
                            .tensor_scale = nvfp4_tensor_scale(cast.columnwise_amax, cast.scale_max),
                            .rotated = usage_.rotate_columnwise,
                            .device_amax = amax_of(1)},
                           [&](const TensorView& in, const BlockOutputs& out) {
                             if (on_device) return quantize_nvfp4(in, cast, *amaxes, out);
                             quantize_nvfp4(in, cast, out);
                           });
}

}  // namespace amaxscope

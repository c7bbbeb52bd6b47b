// The two passes of a linear layer, as megatron/layers/linear.cpp has them for one rank.
#include "capi/calls.hpp"
#include "capi/handles.hpp"
#include "kernels/gemm.hpp"

namespace amaxscope::capi {

namespace {

void require_matrix(const TensorView& x, std::int64_t rows, std::int64_t cols, std::string_view name) {
  AMAXSCOPE_CHECK(x.rows() == rows && x.cols() == cols, ErrorCode::kTensor,
                  "{} is [{}, {}], expected [{}, {}]", name, x.rows(), x.cols(), rows, cols);
}

/// The product, as the config sees and changes it.
void multiply(const amaxscope_layer& layer, TensorKind result, const GemmInputs& inputs,
              const MutableTensorView& out, const TensorMoment& moment) {
  gemm(inputs.a, inputs.b, out);
  DebugQuantizer* const debug = debug_quantizer(layer, result);
  if (debug != nullptr)
    debug->process_gemm_output(out, moment, debug->needs_gemm_inputs() ? &inputs : nullptr);
}

/// Whether a result is looked at or changed in this iteration.
bool is_wanted(const amaxscope_layer& layer, TensorKind result) {
  const DebugQuantizer* const debug = debug_quantizer(layer, result);
  return debug != nullptr && debug->any_feature_enabled();
}

void accumulate(const Tensor& product, float beta, const MutableTensorView& sum) {
  const std::span<const float> added = product.values<float>();
  const std::span<float> values = sum.values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = added[i] + beta * values[i];
}

std::shared_ptr<QuantizedTensor> weight_operand(amaxscope_layer& layer, const TensorView& weight, Usage usage,
                                                const TensorMoment& moment) {
  const bool is_first_use = moment.microbatch == 0 && moment.phase != Phase::kRecompute;
  if (layer.weight == nullptr || is_first_use) {
    layer.weight = quantize(layer, TensorKind::kWeight, weight, usage, moment);
  } else {
    reuse(layer, TensorKind::kWeight, weight, layer.weight, moment);
  }
  return layer.weight;
}

void forward(amaxscope_layer& layer, const TensorView& x, const TensorView& weight,
             const MutableTensorView& y, const TensorMoment& moment, amaxscope_saved** saved) {
  AMAXSCOPE_CHECK(x.cols() == weight.cols(), ErrorCode::kTensor, "x has {} columns and weight {}", x.cols(),
                  weight.cols());
  require_matrix(y, x.rows(), weight.rows(), "y");
  const Usage usage{.rowwise = true, .columnwise = moment.phase != Phase::kEval};
  const std::shared_ptr<QuantizedTensor> activation =
      quantize(layer, TensorKind::kActivation, x, usage, moment);
  const std::shared_ptr<QuantizedTensor> operand = weight_operand(layer, weight, usage, moment);
  multiply(layer, TensorKind::kOutput,
           {.a = activation->operand(Direction::kRowwise),
            .b = operand->operand(Direction::kRowwise),
            .original_a = x,
            .original_b = weight},
           y, moment);
  if (saved == nullptr) return;
  activation->update_usage({.rowwise = false, .columnwise = true});
  *saved = std::make_unique<amaxscope_saved>(amaxscope_saved{activation, operand, x, weight}).release();
}

void backward(const amaxscope_layer& layer, const TensorView& dy, const std::optional<MutableTensorView>& dx,
              const MutableTensorView& dweight, float beta, const TensorMoment& moment,
              const amaxscope_saved& saved) {
  require_matrix(dy, saved.x.rows(), saved.weight_values.rows(), "dy");
  require_matrix(dweight, saved.weight_values.rows(), saved.weight_values.cols(), "dweight");
  if (dx) require_matrix(*dx, saved.x.rows(), saved.x.cols(), "dx");
  const std::shared_ptr<QuantizedTensor> gradient =
      quantize(layer, TensorKind::kGradient, dy, {.rowwise = dx.has_value(), .columnwise = true}, moment);
  if (dx) {
    reuse(layer, TensorKind::kWeight, saved.weight_values, saved.weight, moment);
    multiply(layer, TensorKind::kDgrad,
             {.a = gradient->operand(Direction::kRowwise),
              .b = saved.weight->operand(Direction::kColumnwise),
              .original_a = dy,
              .original_b = saved.weight_values},
             *dx, moment);
  }
  const GemmInputs inputs{.a = gradient->operand(Direction::kColumnwise),
                          .b = saved.activation->operand(Direction::kColumnwise),
                          .original_a = dy,
                          .original_b = saved.x};
  if (beta == 0.0F) return multiply(layer, TensorKind::kWgrad, inputs, dweight, moment);
  // What is inspected or modified is this micro-batch's wgrad and not the running sum.
  AMAXSCOPE_CHECK(dweight.dtype() == DType::kF32, ErrorCode::kTensor,
                  "dweight is {}; a running sum (beta {}) is f32", to_string(dweight.dtype()), beta);
  if (dweight.device().kind != DeviceKind::kCpu) {
    AMAXSCOPE_CHECK(
        !is_wanted(layer, TensorKind::kWgrad), ErrorCode::kTensor,
        "dweight of layer {} is a running sum (beta {}) on {}, and the config looks at this "
        "micro-batch's wgrad: where amaxscope_wants_result says so, give a scratch and beta 0, and "
        "add it with a kernel of the program's",
        layer.description.name, beta, to_string(dweight.device()));
    return gemm(inputs.a, inputs.b, dweight, beta);
  }
  Tensor product(DType::kF32, dweight.shape());
  multiply(layer, TensorKind::kWgrad, inputs, product, moment);
  accumulate(product, beta, dweight);
}

}  // namespace

}  // namespace amaxscope::capi

using namespace amaxscope;  // NOLINT(google-build-using-namespace): what follows is C

extern "C" {

amaxscope_status amaxscope_forward(amaxscope_layer* layer, const amaxscope_view* x,
                                   const amaxscope_view* weight, amaxscope_view* y,
                                   const amaxscope_moment* moment, amaxscope_saved** saved) {
  return capi::call([&] {
    capi::forward(capi::required(layer, "layer"), capi::view_of(x, "x"), capi::view_of(weight, "weight"),
                  capi::mutable_view_of(y, "y"), capi::moment_of(moment), saved);
  });
}

amaxscope_status amaxscope_backward(amaxscope_layer* layer, const amaxscope_view* dy, amaxscope_view* dx,
                                    amaxscope_view* dweight, float beta, const amaxscope_moment* moment,
                                    amaxscope_saved** saved) {
  return capi::call([&] {
    amaxscope_saved*& own = capi::required(saved, "saved");
    const amaxscope_saved& kept = capi::required(own, "*saved");
    const std::optional<MutableTensorView> wanted =
        dx == nullptr ? std::nullopt : std::optional(capi::mutable_view_of(dx, "dx"));
    TensorMoment when = capi::moment_of(moment);
    if (moment == nullptr) when.phase = Phase::kBackward;
    capi::backward(capi::required(layer, "layer"), capi::view_of(dy, "dy"), wanted,
                   capi::mutable_view_of(dweight, "dweight"), beta, when, kept);
    delete own;
    own = nullptr;
  });
}

void amaxscope_saved_free(amaxscope_saved* saved) { delete saved; }

}  // extern "C"

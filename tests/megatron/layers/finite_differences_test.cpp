// Backward by hand against central differences of the forward, in f64, for every layer.
// Step 1e-5: truncation is of the order of 1e-10 times a third derivative, rounding 1e-16 * |loss| / 1e-5.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "megatron/model_support.hpp"

namespace amaxscope::megatron {
namespace {

using testing::random_batch;
using testing::random_tensor;

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;
constexpr TensorMoment kForward{.phase = Phase::kForward, .microbatch = 0};
constexpr TensorMoment kBackward{.phase = Phase::kBackward, .microbatch = 0};

LayerContext f64_context() {
  LayerContext context;
  context.dtype = DType::kF64;
  context.seed = 7;
  return context;
}

void expect_gradient(const std::string& what, std::span<double> values, std::span<const double> gradient,
                     const std::function<double()>& loss) {
  ASSERT_EQ(values.size(), gradient.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + kStep;
    const double above = loss();
    values[i] = value - kStep;
    const double below = loss();
    values[i] = value;
    const double difference = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient[i], difference, kTolerance * std::max(1.0, std::abs(difference)))
        << what << " element " << i;
  }
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i)
    sum += a.values<double>()[i] * b.values<double>()[i];
  return sum;
}

/// Biases and norm weights start at constants; moved off them, so that no term is hidden by a 0 or a 1.
void disturb(std::span<Parameter* const> parameters) {
  std::uint64_t seed = 1000;
  for (Parameter* const parameter : parameters) {
    const Tensor offsets = random_tensor(DType::kF64, parameter->master.shape(), seed++);
    const auto master = parameter->master.values<double>();
    for (std::size_t i = 0; i < master.size(); ++i) master[i] += 0.3 * offsets.values<double>()[i];
    parameter->refresh_compute();
  }
}

/// loss = <layer(x), r>: its gradient by backward(r) against differences, for x and every parameter.
template <class Layer, class Saved, class Forward, class Backward>
void check_layer(Layer& layer, Tensor& x, std::int64_t outputs, const Forward& forward,
                 const Backward& backward) {
  std::vector<Parameter*> parameters;
  layer.collect(parameters);
  disturb(parameters);
  const Tensor r = random_tensor(DType::kF64, {x.rows(), outputs}, 99);
  const auto loss = [&] { return dot(forward(layer, x, nullptr), r); };
  Saved saved;
  const Tensor y = forward(layer, x, &saved);
  ASSERT_EQ(y.shape(), r.shape());
  const Tensor dx = backward(layer, x, r, saved);
  expect_gradient("x", x.values<double>(), dx.values<double>(), loss);
  for (Parameter* const parameter : parameters) {
    expect_gradient(parameter->name, parameter->compute.values<double>(),
                    parameter->gradient.values<double>(), loss);
  }
}

template <class Layer>
void check_linear(Layer& layer, std::int64_t inputs, std::int64_t outputs) {
  Tensor x = random_tensor(DType::kF64, {5, inputs}, 3);
  check_layer<Layer, Linear::Saved>(
      layer, x, outputs,
      [](Layer& l, const Tensor& in, Linear::Saved* saved) { return l.forward(in.clone(), kForward, saved); },
      [](Layer& l, const Tensor&, const Tensor& r, Linear::Saved& saved) {
        return l.backward(r, kBackward, saved);
      });
}

/// A layer whose caller keeps x for backward.
template <class Layer>
void check_block(Layer& layer, Shape input_shape, std::int64_t outputs) {
  using Saved = typename Layer::Saved;
  Tensor x = random_tensor(DType::kF64, input_shape, 4);
  check_layer<Layer, Saved>(
      layer, x, outputs,
      [](Layer& l, const Tensor& in, Saved* saved) { return l.forward(in.view(), kForward, saved); },
      [](Layer& l, const Tensor& in, const Tensor& r, Saved& saved) {
        return l.backward(in.view(), r, kBackward, saved);
      });
}

TEST(FiniteDifferences, ColumnParallelLinear) {
  ColumnParallelLinear layer(f64_context(), {.name = "column", .number = 1, .inputs = 6, .outputs = 4});
  check_linear(layer, 6, 4);
}

TEST(FiniteDifferences, RowParallelLinear) {
  RowParallelLinear layer(f64_context(), {.name = "row", .number = 1, .inputs = 6, .outputs = 4});
  check_linear(layer, 6, 4);
}

TEST(FiniteDifferences, LinearWithoutBias) {
  RowParallelLinear layer(f64_context(),
                          {.name = "row", .number = 1, .inputs = 6, .outputs = 4, .bias = false});
  std::vector<Parameter*> parameters;
  layer.collect(parameters);
  ASSERT_EQ(parameters.size(), 1U);
  check_linear(layer, 6, 4);
}

TEST(FiniteDifferences, LayerNormLinear) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    LayerNormLinear layer(f64_context(), {.kind = kind},
                          {.name = "normed", .number = 1, .inputs = 6, .outputs = 4});
    check_block(layer, {5, 6}, 4);
  }
}

TEST(FiniteDifferences, LayerNormMlp) {
  LayerNormMlp layer(f64_context(), {.name = "mlp", .number = 1, .hidden = 6, .ffn_hidden = 10, .norm = {}});
  check_block(layer, {5, 6}, 6);
}

TEST(FiniteDifferences, LayerNormMlpWithSwiglu) {
  LayerNormMlp layer(
      f64_context(),
      {.name = "mlp", .number = 1, .hidden = 6, .ffn_hidden = 5, .kind = MlpKind::kSwiglu, .norm = {}});
  check_block(layer, {5, 6}, 6);
}

TEST(FiniteDifferences, MoeMlp) {
  for (const std::int64_t top_k : {1, 2, 3}) {
    MoeOptions options;
    options.mlp = {.name = "mlp", .number = 1, .hidden = 6, .ffn_hidden = 4, .norm = {}};
    options.norm_name = "pre_mlp_layernorm";
    options.experts = 3;
    options.top_k = top_k;
    MoeMlp layer(f64_context(), options);
    check_block(layer, {5, 6}, 6);
  }
}

TEST(FiniteDifferences, SelfAttention) {
  for (const bool rotary : {false, true}) {
    for (const bool qk_norm : {false, true}) {
      SelfAttention layer(f64_context(), {.name = "attention",
                                          .number = 1,
                                          .hidden = 8,
                                          .heads = 2,
                                          .sequence = 4,
                                          .norm = {},
                                          .rotary_positions = rotary,
                                          .qk_norm = qk_norm});
      check_block(layer, {8, 8}, 8);
    }
  }
}

void check_transformer_layer(bool recompute) {
  TransformerLayer layer(f64_context(), {.name = "decoder.layers.1",
                                         .number = 1,
                                         .hidden = 8,
                                         .heads = 2,
                                         .sequence = 3,
                                         .ffn_hidden = 12,
                                         .norm = {},
                                         .recompute = recompute});
  using Saved = TransformerLayer::Saved;
  Tensor x = random_tensor(DType::kF64, {6, 8}, 4);
  check_layer<TransformerLayer, Saved>(
      layer, x, 8,
      [](TransformerLayer& l, const Tensor& in, Saved* saved) {
        return l.forward(in.clone(), kForward, saved);
      },
      [](TransformerLayer& l, const Tensor&, const Tensor& r, Saved& saved) {
        return l.backward(r, kBackward, saved);
      });
}

TEST(FiniteDifferences, TransformerLayer) {
  for (const bool recompute : {false, true}) check_transformer_layer(recompute);
}

void check_gpt(const GptOptions& options) {
  Gpt model(f64_context(), options);
  disturb(model.parameters());
  const Batch batch = random_batch(5, 6, 12);
  Gpt::Saved saved;
  model.forward(batch, 1.0 / 6, kForward, &saved);
  model.backward(0, saved);
  model.complete_gradients();
  for (Parameter* const parameter : model.parameters()) {
    expect_gradient(parameter->name, parameter->compute.values<double>(),
                    parameter->gradient.values<double>(),
                    [&] { return model.forward(batch, 0, kForward, nullptr); });
  }
}

TEST(FiniteDifferences, GptLossIncludingTheTiedEmbedding) {
  GptOptions options{
      .layers = 1, .hidden = 8, .heads = 2, .sequence = 3, .ffn_hidden = 8, .vocabulary = 12, .norm = {}};
  check_gpt(options);
  options.mlp = MlpKind::kSwiglu;
  options.rotary_positions = true;
  options.qk_norm = true;
  check_gpt(options);
  options.experts = 2;
  options.recompute = true;
  check_gpt(options);
}

TEST(Linear, BackwardNeedsAForward) {
  ColumnParallelLinear layer(f64_context(), {.name = "column", .number = 1, .inputs = 2, .outputs = 2});
  Linear::Saved saved;
  EXPECT_THROW(std::ignore = layer.backward(random_tensor(DType::kF64, {1, 2}, 1), kBackward, saved), Error);
}

}  // namespace
}  // namespace amaxscope::megatron

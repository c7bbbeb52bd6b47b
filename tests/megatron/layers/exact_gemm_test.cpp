// With exact GEMMs and delayed scaling every operand scale of the first step is bit-identical for every
// tensor split.
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "kernels/gemm.hpp"
#include "megatron/model_support.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::megatron {
namespace {

using testing::ModelRun;
using testing::random_batch;
using testing::random_tensor;
using testing::run_model;
using testing::run_model_on;
using testing::RunOptions;

RunOptions exact_options(DType dtype) {
  RunOptions options;
  options.context.dtype = dtype;
  options.context.recipe = RecipeKind::kDelayed;
  options.context.arithmetic = GemmArithmetic::kExact;
  options.context.seed = 5;
  // The first step runs at scale 1; without a factor its gradients would all be flushed to zero, and equal
  // for that.
  options.gradient_scale = 4096;
  return options;
}

std::vector<Batch> two_micro_batches() { return {random_batch(1, 32, 64), random_batch(2, 32, 64)}; }

void expect_scales_of_one_rank(bool modern) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    RunOptions options = exact_options(dtype);
    if (modern) {
      options.model.mlp = MlpKind::kSwiglu;
      options.model.rotary_positions = true;
      options.model.qk_norm = true;
    }
    const ModelRun expected = run_model(options, nullptr, two_micro_batches());
    ASSERT_EQ(expected.slots.size(), 2U * 4 * 3);
    for (const auto& [name, slot] : expected.slots)
      EXPECT_NE(slot.amax_bits, 0U) << name << " saw zeros only";
    for (const int tp : {1, 2, 4}) {
      for (const bool sequence_parallel : {false, true}) {
        options.context.sequence_parallel = sequence_parallel;
        const ModelRun run = run_model_on(tp, options, two_micro_batches());
        EXPECT_EQ(run.loss, expected.loss) << to_string(dtype) << " tp " << tp;
        for (const auto& [name, slot] : expected.slots) {
          EXPECT_EQ(run.slots.at(name), slot)
              << name << " " << to_string(dtype) << " tp " << tp << " sequence " << sequence_parallel;
        }
      }
    }
  }
}

TEST(ExactGemm, EveryScaleIsTheSameForEveryTensorSplit) { expect_scales_of_one_rank(/*modern=*/false); }
TEST(ExactGemm, SwigluRotaryPositionsAndQkNormKeepIt) { expect_scales_of_one_rank(/*modern=*/true); }

TEST(ExactGemm, ExpertsKeepIt) {
  RunOptions options = exact_options(DType::kF32);
  options.model.experts = 3;
  options.model.top_k = 2;
  const ModelRun expected = run_model(options, nullptr, two_micro_batches());
  ASSERT_EQ(expected.slots.size(), 2U * (2 + 2 * 3) * 3);
  for (const bool sequence_parallel : {false, true}) {
    options.context.sequence_parallel = sequence_parallel;
    const ModelRun run = run_model_on(2, options, two_micro_batches());
    EXPECT_EQ(run.loss, expected.loss);
    EXPECT_EQ(run.slots, expected.slots);
  }
}

// The control: without the reduction the test above must be able to fail.
TEST(ExactGemm, ScalesOfSplitTensorsDifferWithoutTheAmaxReduction) {
  RunOptions options = exact_options(DType::kF32);
  const ModelRun expected = run_model(options, nullptr, two_micro_batches());
  options.amax_over_tp = false;
  std::vector<ModelRun> runs(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    runs[static_cast<std::size_t>(tp.rank())] = run_model(options, &tp, two_micro_batches());
  });
  int differing = 0;
  for (const auto& [name, slot] : expected.slots) {
    differing += static_cast<int>(runs[0].slots.at(name) != slot || runs[1].slots.at(name) != slot);
    const bool replicated = name.ends_with("qkv.activation") || name.ends_with("proj.gradient");
    if (replicated) {
      EXPECT_EQ(runs[0].slots.at(name), runs[1].slots.at(name)) << name;
    }
  }
  EXPECT_GE(differing, 8) << "every weight is split";
}

// Under current scaling each rank of a row-parallel layer has scales of its own: sums of unscaled codes would
// mean nothing.
TEST(ExactGemm, RanksWithFactorsOfTheirOwnDecodeTheirOwnSummand) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const auto outputs = [&](GemmArithmetic arithmetic) {
      LayerContext context;
      context.tp = &tp;
      context.recipe = RecipeKind::kCurrent;
      context.arithmetic = arithmetic;
      RowParallelLinear layer(context,
                              {.name = "row", .number = 1, .inputs = 8, .outputs = 4, .initial_std = 1.0});
      Tensor x = random_tensor(DType::kF32, {3, 4}, static_cast<std::uint64_t>(tp.rank()));
      for (float& value : x.values<float>()) value *= tp.rank() == 0 ? 1.0F : 7.0F;
      Linear::Saved saved;
      std::vector<double> all = testing::to_doubles(layer.forward(std::move(x), {}, &saved).view());
      const Tensor dx =
          layer.backward(random_tensor(DType::kF32, {3, 4}, 9), {.phase = Phase::kBackward}, saved);
      for (const TensorView& part : {dx.view(), layer.weight().gradient.view()}) {
        const std::vector<double> values = testing::to_doubles(part);
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    // The codes are the same; only fp32 sums of up to 8 products differ.
    EXPECT_LT(testing::relative_distance(outputs(GemmArithmetic::kExact), outputs(GemmArithmetic::kBlas)),
              1e-6);
  });
}

/// The largest sum of |a| |b| over k in units of the smallest product: what an exact accumulator must hold.
double units_of(const Float8Tensor& a, const Float8Tensor& b) {
  const auto magnitudes = [](const Float8Tensor& tensor, double& unit) {
    std::vector<double> values =
        testing::to_doubles(Float8Tensor(tensor.shape(), tensor.format(Direction::kRowwise),
                                         tensor.codes(Direction::kRowwise).clone(), Tensor{}, 1.0F, 1.0F)
                                .dequantize(DType::kF64, Direction::kRowwise)
                                .view());
    unit = INFINITY;
    for (double& value : values) {
      value = std::abs(value);
      int exponent = 0;
      if (value == 0) continue;
      const double fraction = std::frexp(value, &exponent);
      // The lowest set bit of a code's value.
      const auto mantissa = static_cast<std::int64_t>(std::ldexp(fraction, 8));
      unit = std::min(unit, std::ldexp(static_cast<double>(mantissa & -mantissa), exponent - 8));
    }
    return values;
  };
  double unit_a = 0;
  double unit_b = 0;
  const std::vector<double> left = magnitudes(a, unit_a);
  const std::vector<double> right = magnitudes(b, unit_b);
  const auto depth = static_cast<std::size_t>(a.shape().cols());
  double largest = 0;
  for (std::size_t m = 0; m < left.size() / depth; ++m) {
    for (std::size_t n = 0; n < right.size() / depth; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < depth; ++k) sum += left[m * depth + k] * right[n * depth + k];
      largest = std::max(largest, sum);
    }
  }
  return largest / (unit_a * unit_b);
}

TEST(ExactGemm, SumsOfCodesFit53BitsAndSplitExactly) {
  constexpr std::int64_t kDepth = 512;
  // Magnitudes over ten binades: more than a tensor of a training step spans after its scale.
  Tensor a = random_tensor(DType::kF32, {8, kDepth}, 1);
  Tensor b = random_tensor(DType::kF32, {8, kDepth}, 2);
  int i = 0;
  for (float& value : a.values<float>()) value = std::ldexp(value, -(i++ % 10));
  const auto codes_a = quantize_float8(a.view(), DType::kE5M2, 57344.0F, {});
  const auto codes_b = quantize_float8(b.view(), DType::kE4M3, 448.0F, {});
  EXPECT_LT(units_of(*codes_a, *codes_b), 0x1p53);
  Tensor all(DType::kF64, {8, 8});
  gemm_exact(codes_a->operand(Direction::kRowwise), codes_b->operand(Direction::kRowwise), all);
  // Any split of k, summed in any order, gives the same bits.
  std::vector<double> sums(64);
  for (const std::int64_t part : {3, 1, 0, 2}) {
    const auto slice = [part](const Float8Tensor& codes) {
      Tensor columns(codes.format(Direction::kRowwise), {8, kDepth / 4});
      for (std::int64_t row = 0; row < 8; ++row) {
        for (std::int64_t k = 0; k < kDepth / 4; ++k) {
          columns.values<std::uint8_t>()[static_cast<std::size_t>(row * (kDepth / 4) + k)] =
              codes.codes(Direction::kRowwise)
                  .values<std::uint8_t>()[static_cast<std::size_t>(row * kDepth + part * (kDepth / 4) + k)];
        }
      }
      return columns;
    };
    const Tensor slice_a = slice(*codes_a);
    const Tensor slice_b = slice(*codes_b);
    Tensor partial(DType::kF64, {8, 8});
    gemm_exact({slice_a.view()}, {slice_b.view()}, partial);
    for (std::size_t e = 0; e < 64; ++e) sums[e] += partial.values<double>()[e];
  }
  for (std::size_t e = 0; e < 64; ++e) EXPECT_EQ(sums[e], all.values<double>()[e]);
}

}  // namespace
}  // namespace amaxscope::megatron

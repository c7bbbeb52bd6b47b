// CompareGemm in layers: against products worked out here, for every tensor split, with nothing kept or sent
// when it is not due.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "collectives/loopback_communicator.hpp"
#include "megatron/layers/linear.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

using testing::random_tensor;
using testing::session_options;
using testing::to_doubles;

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kInputs = 16;
constexpr std::int64_t kOutputs = 12;

constexpr const char* kCompare = R"(
compare:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    CompareGemm: {enabled: True, gemms: [fprop, dgrad, wgrad], freq: 2}
)";

struct Split {
  int tp = 1;
  ParallelMode mode = ParallelMode::kColumn;
  bool sequence_parallel = false;
};

/// tensor -> statistic -> value; of all ranks' records, the leader's.
using Values = std::map<std::string, std::map<std::string, double>>;

struct Outcome {
  std::map<std::int64_t, Values> iterations;
  std::uint64_t calls_of_due = 0;      ///< debug collectives of rank 0 during iteration 0
  std::uint64_t calls_of_not_due = 0;  ///< and 1
};

/// This rank's part of a whole [rows, cols] tensor.
Tensor part(const Tensor& whole, Layout layout, Communicator& tp) {
  const std::int64_t rows = layout == Layout::kShard0 ? whole.rows() / tp.size() : whole.rows();
  const std::int64_t cols = layout == Layout::kShard1 ? whole.cols() / tp.size() : whole.cols();
  const std::int64_t row = layout == Layout::kShard0 ? tp.rank() * rows : 0;
  const std::int64_t col = layout == Layout::kShard1 ? tp.rank() * cols : 0;
  Tensor result(DType::kF32, {rows, cols});
  const auto from = whole.values<float>();
  auto to = result.values<float>();
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      to[static_cast<std::size_t>(i * cols + j)] =
          from[static_cast<std::size_t>((row + i) * whole.cols() + col + j)];
    }
  }
  return result;
}

Tensor whole_activation(int microbatch) {
  return random_tensor(DType::kF32, {kTokens, kInputs}, static_cast<std::uint64_t>(50 + microbatch));
}
Tensor whole_gradient(int microbatch) {
  return random_tensor(DType::kF32, {kTokens, kOutputs}, static_cast<std::uint64_t>(60 + microbatch));
}
Tensor whole_weight() { return random_tensor(DType::kF32, {kOutputs, kInputs}, 70); }

Outcome run(const Split& split) {
  Outcome outcome;
  std::mutex mutex;
  run_loopback_ranks(split.tp, [&](Communicator& tp) {
    std::vector<testing::Seen> seen;
    const FeatureRegistry registry = testing::with_recorder(seen);
    SessionOptions options = session_options(kCompare);
    options.extra_sinks.push_back(make_callback_sink([&](const StatRecord& record) {
      if (!record.leader || tp.rank() != 0) return;
      const std::scoped_lock lock(mutex);
      for (const StatValue& value : record.stats) {
        outcome.iterations[record.iteration][record.tensor][value.name] = value.value;
      }
    }));
    DebugSession session(registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
                         std::move(options));
    DelayedScalingState delayed({}, nullptr);  // never updated: scale 1 on every rank
    LayerContext context;
    context.tp = &tp;
    context.recipe = RecipeKind::kDelayed;
    context.delayed = &delayed;
    context.sequence_parallel = split.sequence_parallel;
    context.session = &session;
    LinearOptions shape;
    shape.name = "fc";
    shape.inputs = kInputs;
    shape.outputs = kOutputs;
    shape.bias = false;
    Linear layer(context, split.mode, shape);
    const LayerDescription& description = layer.description();
    layer.weight().compute = part(whole_weight(), layout_of(description, TensorKind::kWeight), tp);
    for (int iteration = 0; iteration < 2; ++iteration) {
      const std::uint64_t before = tp.counters().calls(Traffic::kDebug);
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        const TensorMoment forward{.phase = Phase::kForward, .microbatch = microbatch};
        const TensorMoment backward{.phase = Phase::kBackward, .microbatch = microbatch};
        Linear::Saved saved;
        static_cast<void>(layer.forward(
            part(whole_activation(microbatch), layout_of(description, TensorKind::kActivation), tp), forward,
            &saved));
        EXPECT_EQ(saved.input.defined(), iteration == 0);  // kept for wgrad only when that is compared
        const Tensor dy = part(whole_gradient(microbatch), layout_of(description, TensorKind::kGradient), tp);
        static_cast<void>(layer.backward(dy.view(), backward, saved));
      }
      const std::uint64_t calls = tp.counters().calls(Traffic::kDebug) - before;
      if (tp.rank() == 0) (iteration == 0 ? outcome.calls_of_due : outcome.calls_of_not_due) = calls;
      tp.barrier({Traffic::kTrainer, "end of iteration"});
      session.step();
    }
    EXPECT_FALSE(session.detached());
    session.close();
  });
  return outcome;
}

// What the layer should report, worked out with loops in double.
using Matrix = std::vector<std::vector<double>>;

Matrix matrix_of(const Tensor& tensor) {
  const std::vector<double> values = to_doubles(tensor.view());
  Matrix rows(static_cast<std::size_t>(tensor.rows()));
  const auto cols = static_cast<std::size_t>(tensor.cols());
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(values.begin() + static_cast<std::ptrdiff_t>(i * cols),
                   values.begin() + static_cast<std::ptrdiff_t>((i + 1) * cols));
  return rows;
}
Matrix turned(const Matrix& m) {
  Matrix result(m.front().size(), std::vector<double>(m.size()));
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = 0; j < m.front().size(); ++j) result[j][i] = m[i][j];
  return result;
}
std::vector<double> times_transposed(const Matrix& a, const Matrix& b) {
  std::vector<double> result;
  for (const auto& row : a) {
    for (const auto& other : b) {
      double sum = 0;
      for (std::size_t k = 0; k < row.size(); ++k) sum += row[k] * other[k];
      result.push_back(sum);
    }
  }
  return result;
}
Matrix quantized(const Tensor& tensor, DType format) {
  return matrix_of(
      quantize_float8(tensor.view(), format, 1.0F, {})->dequantize(DType::kF32, Direction::kRowwise));
}

struct Expected {
  double error = 0;
  double reference = 0;
  double bias = 0;
  double from_a = 0;
  double from_b = 0;
  double from_rest = 0;

  void add(const Matrix& a, const Matrix& b, const Matrix& qa, const Matrix& qb) {
    const auto r = times_transposed(a, b);
    const auto with_a = times_transposed(qa, b);
    const auto with_b = times_transposed(a, qb);
    const auto both = times_transposed(qa, qb);
    for (std::size_t i = 0; i < r.size(); ++i) {
      const double e = both[i] - r[i];  // fp32 accumulation of 16 products adds about 1e-6 of it
      error += e * e;
      reference += r[i] * r[i];
      bias += e * r[i];
      from_a += e * (with_a[i] - r[i]);
      from_b += e * (with_b[i] - r[i]);
      from_rest += e * (both[i] - with_a[i] - with_b[i] + r[i]);
    }
  }
};

std::map<std::string, Expected> expected() {
  std::map<std::string, Expected> result;
  const Matrix w = matrix_of(whole_weight());
  const Matrix qw = quantized(whole_weight(), DType::kE4M3);
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const Matrix x = matrix_of(whole_activation(microbatch));
    const Matrix qx = quantized(whole_activation(microbatch), DType::kE4M3);
    const Matrix g = matrix_of(whole_gradient(microbatch));
    const Matrix qg = quantized(whole_gradient(microbatch), DType::kE5M2);
    result["output"].add(x, w, qx, qw);
    result["dgrad"].add(g, turned(w), qg, turned(qw));
    result["wgrad"].add(turned(g), turned(x), turned(qg), turned(qx));
  }
  return result;
}

void expect_matches(const std::map<std::string, double>& values, const Expected& expected, bool wgrad,
                    const std::string& a, const std::string& b) {
  constexpr double kTolerance = 1e-4;
  const double ratio = std::sqrt(expected.error / expected.reference);
  EXPECT_NEAR(values.at("relative_error"), ratio, kTolerance * ratio);
  EXPECT_NEAR(values.at("sqnr"), -20 * std::log10(ratio), 1e-2);
  EXPECT_NEAR(values.at("result_norm"), std::sqrt(expected.reference), 1e-9 * expected.reference);
  EXPECT_NEAR(values.at("error_from_" + a + "%"), 100 * expected.from_a / expected.error, 0.05);
  EXPECT_NEAR(values.at("error_from_" + b + "%"), 100 * expected.from_b / expected.error, 0.05);
  EXPECT_NEAR(values.at("error_from_rest%"), 100 * expected.from_rest / expected.error, 0.05);
  EXPECT_NEAR(values.at("error_from_accumulation%"), 0, 0.05);
  if (!wgrad) return;
  EXPECT_NEAR(values.at("gradient_noise"), ratio, kTolerance * ratio);
  EXPECT_NEAR(values.at("gradient_bias"), expected.bias / expected.reference, 1e-5);
}

class CompareGemmLayers : public ::testing::TestWithParam<Split> {};

TEST_P(CompareGemmLayers, ReportsWhatTheWholeProductsGive) {
  const Split split = GetParam();
  const Outcome outcome = run(split);
  ASSERT_EQ(outcome.iterations.size(), 1U);
  const Values& values = outcome.iterations.at(0);
  const auto all = expected();
  const bool column = split.mode == ParallelMode::kColumn;
  // A partial sum is one rank's: not the whole product.
  if (column || split.tp == 1)
    expect_matches(values.at("output"), all.at("output"), false, "activation", "weight");
  if (!column || split.tp == 1)
    expect_matches(values.at("dgrad"), all.at("dgrad"), false, "gradient", "weight");
  expect_matches(values.at("wgrad"), all.at("wgrad"), true, "gradient", "activation");
  EXPECT_EQ(outcome.calls_of_not_due, 0U);
  if (split.sequence_parallel) {
    EXPECT_GT(outcome.calls_of_due, 0U);  // originals are gathered
  } else {
    EXPECT_EQ(outcome.calls_of_due, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Splits, CompareGemmLayers,
    ::testing::Values(Split{1, ParallelMode::kColumn, false}, Split{2, ParallelMode::kColumn, false},
                      Split{2, ParallelMode::kColumn, true}, Split{2, ParallelMode::kRow, false},
                      Split{2, ParallelMode::kRow, true}, Split{4, ParallelMode::kColumn, true}));

}  // namespace
}  // namespace amaxscope::megatron

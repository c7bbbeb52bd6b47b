// Planted faults: what the command line may say, when and where each strikes, and that nothing else changes.
#include "megatron/faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/layers/linear.hpp"
#include "megatron/model_support.hpp"
#include "megatron/planted_faults.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_tensor;
using testing::to_doubles;

constexpr TensorMoment kForward{.phase = Phase::kForward, .microbatch = 0};
constexpr TensorMoment kBackward{.phase = Phase::kBackward, .microbatch = 0};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "no error";
}
std::string parse_error(const std::string& text) {
  return error_of([&] { std::ignore = parse_fault(text); });
}

TEST(ParseFault, TakesEveryKey) {
  const Fault fault =
      parse_fault("scale_off@layer=decoder.layers.1.mlp.linear_fc1,rank=1,iteration=41,tensor=weight,k=-3");
  EXPECT_EQ(fault.kind, FaultKind::kScaleOff);
  EXPECT_EQ(fault.layer, "decoder.layers.1.mlp.linear_fc1");
  EXPECT_EQ(fault.rank, 1);
  EXPECT_EQ(fault.iteration, 41);
  EXPECT_EQ(fault.tensor, TensorKind::kWeight);
  EXPECT_EQ(fault.exponent, -3);
}

TEST(ParseFault, OnlyTheLayerIsRequired) {
  const Fault fault = parse_fault("nan@layer=fc");
  EXPECT_EQ(fault.kind, FaultKind::kNan);
  EXPECT_EQ(fault.layer, "fc");
  EXPECT_EQ(fault.tensor, TensorKind::kActivation);
  EXPECT_FALSE(fault.rank.has_value());
  EXPECT_FALSE(fault.iteration.has_value());
  EXPECT_EQ(fault.index, 0);
  EXPECT_EQ(parse_fault("nan@layer=fc,tensor=wgrad,index=7").tensor, TensorKind::kWgrad);
  EXPECT_EQ(parse_fault("skip_amax_reduction@layer=fc").kind, FaultKind::kSkipAmaxReduction);
}

TEST(ParseFault, ErrorsNameWhatIsAllowed) {
  EXPECT_THAT(parse_error("scale@layer=a"),
              AllOf(HasSubstr("\"scale\""), HasSubstr("skip_amax_reduction, scale_off, nan")));
  EXPECT_THAT(parse_error("nan"), HasSubstr("layer=NAME is missing"));
  EXPECT_THAT(parse_error("nan@rank=1"), HasSubstr("layer=NAME is missing"));
  EXPECT_THAT(parse_error("nan@layer=a,foo=1"),
              AllOf(HasSubstr("foo=1"), HasSubstr("rank, iteration, tensor, index")));
  EXPECT_THAT(parse_error("nan@layer=a,k=1"), HasSubstr("\"k=1\""));
  EXPECT_THAT(parse_error("nan@layer="), HasSubstr("\"layer=\""));
  EXPECT_THAT(parse_error("nan@layer=a,rank"), HasSubstr("\"rank\""));
  EXPECT_THAT(parse_error("nan@layer=a,layer=b"), HasSubstr("given twice"));
  EXPECT_THAT(parse_error("nan@layer=a,rank=-1"), HasSubstr("rank is \"-1\""));
  EXPECT_THAT(parse_error("nan@layer=a,iteration=4x"), HasSubstr("iteration is \"4x\""));
  EXPECT_THAT(parse_error("scale_off@layer=a"), HasSubstr("needs k="));
  EXPECT_THAT(parse_error("scale_off@layer=a,k=65"), HasSubstr("from -64 to 64"));
  EXPECT_THAT(parse_error("scale_off@layer=a,k=1,tensor=output"),
              AllOf(HasSubstr("\"output\""), HasSubstr("activation, weight, gradient")));
  EXPECT_THAT(parse_error("nan@layer=a,tensor=bias"), HasSubstr("output, wgrad, dgrad"));
}

TEST(FaultTable, StrikesOnItsRankAndIterationOnly) {
  const std::vector<Fault> faults = {parse_fault("nan@layer=a,rank=1,iteration=3,tensor=weight")};
  FaultTable here(faults, 1);
  FaultTable there(faults, 0);
  for (const std::int64_t iteration : {2, 3, 4}) {
    here.begin_iteration(iteration);
    there.begin_iteration(iteration);
    EXPECT_EQ(here.due(FaultKind::kNan, "a", TensorKind::kWeight) != nullptr, iteration == 3);
    EXPECT_EQ(there.due(FaultKind::kNan, "a", TensorKind::kWeight), nullptr);
  }
  here.begin_iteration(3);
  EXPECT_EQ(here.due(FaultKind::kNan, "b", TensorKind::kWeight), nullptr);
  EXPECT_EQ(here.due(FaultKind::kNan, "a", TensorKind::kActivation), nullptr);
  EXPECT_EQ(here.due(FaultKind::kScaleOff, "a", TensorKind::kWeight), nullptr);
  EXPECT_TRUE(there.planted("a"));
  EXPECT_FALSE(there.planted("b"));
}

TEST(FaultTable, UnknownLayersAreAnErrorThatNamesTheKnown) {
  const FaultTable table({parse_fault("nan@layer=fc3")}, 0);
  EXPECT_NO_THROW(table.require_layers(std::vector<std::string>{"fc3"}));
  EXPECT_THAT(error_of([&] {
                table.require_layers(std::vector<std::string>{"fc1", "fc2"});
              }),
              AllOf(HasSubstr("\"fc3\""), HasSubstr("fc1, fc2")));
}

TEST(PlantNan, WritesOneElementInEveryDtype) {
  const FaultTable table({parse_fault("nan@layer=a,index=2")}, 0);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    Tensor values(dtype, {2, 2});
    plant_nan(table, "a", TensorKind::kActivation, values);
    const std::vector<double> all = to_doubles(values.view());
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan(all[i]), i == 2) << to_string(dtype) << " " << i;
  }
  Tensor two(DType::kF32, {2});
  EXPECT_THAT(error_of([&] { plant_nan(table, "a", TensorKind::kActivation, two); }),
              AllOf(HasSubstr("index 2"), HasSubstr("2 elements")));
  const FaultTable elsewhere({parse_fault("nan@layer=a,index=2,rank=1")}, 0);
  EXPECT_THAT(error_of([&] { plant_nan(elsewhere, "a", TensorKind::kActivation, two); }),
              HasSubstr("index 2"))
      << "every rank refuses, so that none waits for another";
}

// amax 1 -> scale 448 in E4M3; 2^3 times that is 3584, so 1 saturates at 448 / 3584 = 0.125.
TEST(ScaleOff, ScalesCodesAndDecodingFactorAlike) {
  FaultTable table({parse_fault("scale_off@layer=a,tensor=weight,k=3,iteration=1")}, 0);
  ScaleOffQuantizer quantizer(
      std::make_shared<Float8CurrentScalingQuantizer>(DType::kE4M3, CurrentScalingOptions{}, nullptr), table,
      "a", TensorKind::kWeight);
  const Tensor x = Tensor::of<float>({1.0F, 0.0625F}, {1, 2});
  table.begin_iteration(0);
  const auto sound = quantizer.quantize(x, {.rowwise = true, .columnwise = true}, kForward);
  EXPECT_EQ(to_doubles(sound->dequantize(DType::kF32).view()), (std::vector<double>{1.0, 0.0625}));
  table.begin_iteration(1);
  const auto struck = quantizer.quantize(x, {.rowwise = true, .columnwise = true}, kForward);
  EXPECT_EQ(dynamic_cast<Float8Tensor&>(*struck).scale(), 3584.0F);
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    EXPECT_EQ(to_doubles(struck->dequantize(DType::kF32, direction).view()),
              (std::vector<double>{0.125, 0.0625}));
  }
  table.begin_iteration(0);
  quantizer.update(x, *struck, kForward);
  EXPECT_EQ(dynamic_cast<Float8Tensor&>(*struck).scale(), 448.0F);
  table.begin_iteration(1);
  quantizer.update(x, *struck, kForward);
  EXPECT_EQ(dynamic_cast<Float8Tensor&>(*struck).scale(), 3584.0F);
}

struct LinearRun {
  std::vector<double> output;
  std::vector<double> dx;
  std::vector<double> dweight;
  std::optional<std::int64_t> first_effect;  ///< of the fault, on this rank
};

/// Forward and backward of one column-parallel layer on two ranks with sequence parallelism and current
/// scaling; rank r's rows of x are 10^r times a pattern. By rank.
std::vector<LinearRun> run_column(const std::string& fault, RecipeKind recipe = RecipeKind::kCurrent) {
  std::vector<LinearRun> runs(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    const std::vector<Fault> faults = fault.empty() ? std::vector<Fault>{} : std::vector{parse_fault(fault)};
    const FaultTable table(faults, tp.rank());
    LayerContext context;
    context.tp = &tp;
    context.recipe = recipe;
    context.sequence_parallel = true;
    context.faults = fault.empty() ? nullptr : &table;
    context.seed = 3;
    ColumnParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 4, .outputs = 4});
    Tensor x = random_tensor(DType::kF32, {2, 4}, 8);
    for (float& value : x.values<float>()) value *= tp.rank() == 0 ? 1.0F : 10.0F;
    Linear::Saved saved;
    LinearRun& run = runs[static_cast<std::size_t>(tp.rank())];
    run.output = to_doubles(layer.forward(std::move(x), kForward, &saved).view());
    run.dx = to_doubles(layer.backward(random_tensor(DType::kF32, {4, 2}, 9), kBackward, saved).view());
    run.dweight = to_doubles(layer.weight().gradient.view());
    if (!faults.empty()) run.first_effect = table.first_effects()[0];
  });
  return runs;
}

std::vector<std::size_t> nan_positions(const std::vector<double>& values) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) positions.push_back(i);
  }
  return positions;
}

TEST(FaultPoints, WithoutAFaultDueNothingChanges) {
  const std::vector<LinearRun> clean = run_column("");
  for (const char* const fault :
       {"nan@layer=fc,iteration=5", "nan@layer=other", "scale_off@layer=fc,k=2,rank=7",
        "skip_amax_reduction@layer=fc,iteration=5"}) {
    const std::vector<LinearRun> runs = run_column(fault);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(runs[rank].output, clean[rank].output) << fault;
      EXPECT_EQ(runs[rank].dx, clean[rank].dx) << fault;
      EXPECT_EQ(runs[rank].dweight, clean[rank].dweight) << fault;
    }
  }
}

TEST(FaultPoints, NanInEachTensorReachesWhatItMust) {
  // The activation of rank 1 is row 2 of the gathered input: [4, 2] outputs of both ranks have it.
  std::vector<LinearRun> runs = run_column("nan@layer=fc,rank=1,index=1");
  for (const LinearRun& run : runs) EXPECT_EQ(nan_positions(run.output), (std::vector<std::size_t>{4, 5}));
  // A weight [2, 4] of rank 1: column 1 of its outputs, and nothing of rank 0's.
  runs = run_column("nan@layer=fc,rank=1,tensor=weight,index=7");
  EXPECT_TRUE(nan_positions(runs[0].output).empty());
  EXPECT_EQ(nan_positions(runs[1].output), (std::vector<std::size_t>{1, 3, 5, 7}));
  // A gradient [4, 2] of rank 1: its wgrad row 0; dx row 3 through the sum over ranks, which is rank 1's last
  // row.
  runs = run_column("nan@layer=fc,rank=1,tensor=gradient,index=6");
  EXPECT_TRUE(nan_positions(runs[1].output).empty());
  EXPECT_EQ(nan_positions(runs[1].dweight), (std::vector<std::size_t>{0, 1, 2, 3}));
  EXPECT_TRUE(nan_positions(runs[0].dweight).empty());
  EXPECT_TRUE(nan_positions(runs[0].dx).empty());
  EXPECT_EQ(nan_positions(runs[1].dx), (std::vector<std::size_t>{4, 5, 6, 7}));
  // Results, as they leave the GEMM: a partial dgrad [4, 4] of rank 0 whose element 9 is rank 1's element 1.
  runs = run_column("nan@layer=fc,rank=0,tensor=output,index=3");
  EXPECT_EQ(nan_positions(runs[0].output), (std::vector<std::size_t>{3}));
  EXPECT_TRUE(nan_positions(runs[1].output).empty());
  runs = run_column("nan@layer=fc,rank=0,tensor=dgrad,index=9");
  EXPECT_TRUE(nan_positions(runs[0].dx).empty());
  EXPECT_EQ(nan_positions(runs[1].dx), (std::vector<std::size_t>{1}));
  runs = run_column("nan@layer=fc,rank=0,tensor=wgrad,index=2");
  EXPECT_EQ(nan_positions(runs[0].dweight), (std::vector<std::size_t>{2}));
  EXPECT_TRUE(nan_positions(runs[1].dweight).empty());
}

TEST(FaultPoints, NanIsPlantedWithoutARecipeToo) {
  const std::vector<LinearRun> runs = run_column("nan@layer=fc,rank=1,index=1", RecipeKind::kNone);
  for (const LinearRun& run : runs) EXPECT_EQ(nan_positions(run.output), (std::vector<std::size_t>{4, 5}));
}

// Rank 1's rows are ten times rank 0's, so the sound scale is rank 1's. A rank 0 that skips the reduction
// makes its codes ten times too large and decodes rank 1's codes with its own factor: a tenth of their value.
TEST(FaultPoints, SkippedReductionDecodesForeignCodesWithTheOwnScale) {
  const std::vector<LinearRun> clean = run_column("");
  const std::vector<LinearRun> runs = run_column("skip_amax_reduction@layer=fc,rank=0");
  for (std::size_t i = 4; i < 8; ++i) {
    EXPECT_NEAR(runs[0].output[i], clean[0].output[i] / 10, 0.02 * std::abs(clean[0].output[i] / 10));
  }
  // Rank 1 decodes its own rows soundly, and rank 0's codes as ten times their value.
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(runs[1].output[i], clean[1].output[i]);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(runs[1].output[i], clean[1].output[i] * 10, 2.0 * std::abs(clean[1].output[i]));
  }
}

// It strikes from the first step on, and makes no difference on the rank whose own amax is the group's.
TEST(FaultPoints, ASkippedReductionSaysWhenItMadeADifference) {
  const auto effect = [](const std::string& rank, std::size_t of) {
    return run_column("skip_amax_reduction@layer=fc,rank=" + rank)[of].first_effect;
  };
  EXPECT_EQ(effect("0", 0), 0);
  EXPECT_EQ(effect("0", 1), std::nullopt);
  EXPECT_EQ(effect("1", 1), std::nullopt);
  FaultTable table({parse_fault("skip_amax_reduction@layer=fc")}, 0);
  table.begin_iteration(7);
  table.took_effect(table.faults()[0]);
  table.begin_iteration(8);
  table.took_effect(table.faults()[0]);
  EXPECT_EQ(table.first_effects()[0], 7);
}

TEST(FaultPoints, ScaleOffStrikesOneRank) {
  const std::vector<LinearRun> clean = run_column("");
  const std::vector<LinearRun> runs = run_column("scale_off@layer=fc,rank=1,tensor=weight,k=4");
  EXPECT_EQ(runs[0].output, clean[0].output);
  EXPECT_NE(runs[1].output, clean[1].output);
}

TEST(FaultPoints, WhereNothingCanStrikeIsAnError) {
  EXPECT_THAT(error_of([] { run_column("skip_amax_reduction@layer=fc,tensor=weight"); }),
              AllOf(HasSubstr("weight of fc"), HasSubstr("where codes are gathered")));
  EXPECT_THAT(error_of([] { run_column("scale_off@layer=fc,k=1", RecipeKind::kNone); }),
              HasSubstr("not quantized by a recipe"));
  EXPECT_THAT(error_of([] { run_column("nan@layer=fc,index=99"); }), HasSubstr("index 99"));
}

}  // namespace
}  // namespace amaxscope::megatron

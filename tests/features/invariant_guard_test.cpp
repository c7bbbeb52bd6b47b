// InvariantGuard finds each broken equality where it is, and nothing in a healthy run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string guard_yaml(const std::string& keys = "tensors: [activation, weight, gradient, output]") {
  return "all: {enabled: true, layers: {layer_types: [all]}, observe: '.', transformer_engine: "
         "{InvariantGuard: "
         "{enabled: true, " +
         keys + "}}}";
}

Tensor values(std::int64_t rows, std::int64_t cols, float first = 0.25F) {
  Tensor x(DType::kF32, {rows, cols});
  auto out = x.values<float>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = first + static_cast<float>((i * 2654435761U) % 1000U) * 0.001F - 0.5F;
  }
  return x;
}

/// What all ranks report, each finding once.
std::vector<Finding> findings_of(const Collected& collected) {
  std::vector<Finding> all;
  for (const auto& [rank, findings] : collected.findings)
    all.insert(all.end(), findings.begin(), findings.end());
  return all;
}

std::shared_ptr<Quantizer> current(DType format = DType::kE4M3) {
  return std::make_shared<Float8CurrentScalingQuantizer>(format, CurrentScalingOptions{}, ReduceAmaxes{});
}

LayerDescription with_recipe(LayerDescription layer, RecipeKind recipe) {
  layer.recipe = recipe;
  return layer;
}

TEST(InvariantGuard, SaysNothingOfAHealthyRunAndCountsWhatItCompared) {
  const auto collected =
      run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [](SessionRank& rank) {
        LayerDescription description = with_recipe(rank.layer("fc1"), RecipeKind::kCurrent);
        const LayerHandle layer = rank.session.layer(description, {current(), current(), current()});
        const Tensor weight = values(8, 16);
        const Tensor x = values(8, 16, 0.5F);
        for (int step = 0; step < 3; ++step) {
          for (int microbatch = 0; microbatch < 2; ++microbatch) {
            DebugQuantizer* activation = layer.quantizer(TensorKind::kActivation);
            ASSERT_NE(activation, nullptr);
            static_cast<void>(activation->quantize(x, {true, true}, {Phase::kForward, microbatch}));
            static_cast<void>(activation->quantize(x, {true, true}, {Phase::kRecompute, microbatch}));
          }
          DebugQuantizer* weights = layer.quantizer(TensorKind::kWeight);
          const auto operand = weights->quantize(weight, {true, true}, {});
          weights->inspect_reuse(weight, *operand, {Phase::kForward, 1});
          rank.session.observe("norm.weight", "parameter", x, Layout::kReplicated);
          rank.session.scalar("loss", 1.5);
          rank.session.step();
        }
      });
  EXPECT_THAT(findings_of(*collected), IsEmpty());
  const Scalars& counts = collected->scalars[0][1];
  for (const char* check :
       {"checked/I1", "checked/I2", "checked/I3", "checked/I4", "checked/I5", "checked/I7", "checked/I8"}) {
    ASSERT_TRUE(counts.contains(check)) << check;
    EXPECT_GT(counts.at(check), 0) << check;
  }
}

TEST(InvariantGuard, I1NamesTheReplicaThatDiffersAndWhere) {
  const auto collected =
      run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [](SessionRank& rank) {
        for (int step = 0; step < 3; ++step) {
          Tensor weight = values(16, 64);
          if (rank.world.rank() == 3 && step >= 1) weight.values<float>()[100] *= 1.5F;
          rank.session.observe("final_norm.weight", "parameter", weight, Layout::kReplicated);
          rank.session.step();
        }
      });
  const std::vector<Finding> findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));  // once, not every step and not on every rank
  EXPECT_EQ(findings[0].check, "I1");
  EXPECT_EQ(findings[0].iteration, 1);
  EXPECT_EQ(findings[0].layer, "final_norm.weight");
  EXPECT_THAT(findings[0].ranks, ElementsAre(3));
  EXPECT_EQ(findings[0].details.at("first_elements"), "96-127");  // 1024 elements in 32 parts
  EXPECT_THAT(findings[0].what, HasSubstr("ranks 0,1,2 against rank 3"));
}

// A quarter more everywhere: of the norm that is a quarter, of an element next to 0 the guard may not say
// more.
TEST(InvariantGuard, I1SaysHowFarReplicasAreApart) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [](SessionRank& rank) {
        Tensor weight = values(16, 64);
        if (rank.world.rank() == 1) {
          for (float& value : weight.values<float>()) value *= 1.25F;
        }
        rank.session.observe("norm.weight", "parameter", weight, Layout::kReplicated);
        rank.session.step();
      });
  const std::vector<Finding> findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_NEAR(std::stod(findings[0].details.at("relative_norm_of_difference")), 0.25, 1e-6);
}

TEST(InvariantGuard, I1ComparesSplitWeightsOverDataParallelOnly) {
  const auto body = [](bool broken) {
    return [broken](SessionRank& rank) {
      const LayerHandle layer = rank.session.layer(rank.layer("fc1"));
      // Each tensor-parallel rank has another part; data-parallel ranks have the same.
      Tensor part = values(8, 16, static_cast<float>(rank.groups.tp().rank()));
      if (broken && rank.world.rank() == 2) part.values<float>()[5] = 9.0F;
      feed(layer, TensorKind::kWeight, part);
      rank.session.step();
    };
  };
  EXPECT_THAT(findings_of(*run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = guard_yaml()}, body(false))),
              IsEmpty());
  const auto findings =
      findings_of(*run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = guard_yaml()}, body(true)));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].tensor, "weight");
  EXPECT_THAT(findings[0].details.at("sets"), HasSubstr("rank 0 against rank 2"));
}

TEST(InvariantGuard, I1LetsComputedReplicasDifferByRoundingOnly) {
  const auto run = [](float factor) {
    return findings_of(
        *run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [=](SessionRank& rank) {
          const LayerHandle layer = rank.session.layer(rank.layer("fc1"));
          Tensor x = values(4, 8, 2.0F);
          if (rank.world.rank() == 1) {
            for (float& value : x.values<float>()) value *= factor;
          }
          feed(layer, TensorKind::kActivation, x);
          rank.session.step();
        }));
  };
  EXPECT_THAT(run(1.0F + 1e-6F), IsEmpty());
  EXPECT_THAT(run(1.5F), ElementsAre(Field(&Finding::check, "I1")));
}

TEST(InvariantGuard, I2NamesTheRankThatDidNotTakeTheGroupsAmax) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [](SessionRank& rank) {
        LayerDescription description = with_recipe(rank.layer("qkv"), RecipeKind::kCurrent);
        description.sequence_parallel = true;
        // Rank 0 takes its own amax only; rank 1, whose amax is the larger, has the right scale either way.
        const LayerHandle layer = rank.session.layer(description, {current(), nullptr, nullptr});
        feed(layer, TensorKind::kActivation, values(4, 8, rank.world.rank() == 1 ? 8.0F : 1.0F));
        rank.session.step();
      });
  const auto findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I2");
  EXPECT_EQ(findings[0].layer, "qkv");
  EXPECT_EQ(findings[0].tensor, "activation");
  EXPECT_THAT(findings[0].ranks, ElementsAre(0));
  EXPECT_THAT(findings[0].what,
              AllOf(HasSubstr("gathered"), HasSubstr("rank 0 did not take the largest amax")));
}

// Under delayed scaling the amaxes behind the scales are not known: of two ranks, the one with the smaller
// scale has seen the larger amax, whichever that is. NVFP4 shares the amax itself.
TEST(InvariantGuard, I2NamesTheRankThatHasNotSeenTheLargestAmax) {
  for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kNvfp4}) {
    for (const int small : {0, 1}) {
      const auto collected =
          run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [&](SessionRank& rank) {
            LayerDescription description = with_recipe(rank.layer("qkv"), recipe);
            description.sequence_parallel = true;
            const std::shared_ptr<Quantizer> own =
                recipe == RecipeKind::kNvfp4
                    ? make_quantizer(
                          {.recipe = recipe, .tensor = TensorKind::kActivation, .name = "qkv.activation"})
                    : current();
            const LayerHandle layer = rank.session.layer(description, {own, nullptr, nullptr});
            feed(layer, TensorKind::kActivation, values(16, 32, rank.world.rank() == small ? 1.0F : 8.0F));
            rank.session.step();
          });
      std::vector<Finding> findings = findings_of(*collected);
      std::erase_if(findings, [](const Finding& finding) { return finding.check != "I2"; });
      ASSERT_THAT(findings, SizeIs(1)) << to_string(recipe);
      EXPECT_THAT(findings[0].ranks, ElementsAre(small)) << to_string(recipe);
    }
  }
}

/// NVFP4 takes an amax for each direction: of x, and of its rotated columns.
TEST(InvariantGuard, I2ComparesBothDirectionsOfOneObject) {
  for (const std::size_t direction : {0U, 1U}) {
    const auto collected =
        run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [&](SessionRank& rank) {
          LayerDescription description = with_recipe(rank.layer("qkv"), RecipeKind::kNvfp4);
          description.sequence_parallel = true;
          const bool doubles = rank.world.rank() == 1;
          const std::shared_ptr<Quantizer> own =
              make_quantizer({.recipe = RecipeKind::kNvfp4,
                              .tensor = TensorKind::kActivation,
                              .name = "qkv.activation",
                              .reduce_amaxes = [=](const MutableTensorView& amaxes) {
                                if (doubles)
                                  amaxes.values<std::uint32_t>()[direction] += 1U << 23;  // of a float's bits
                              }});
          const LayerHandle layer = rank.session.layer(description, {own, nullptr, nullptr});
          feed(layer, TensorKind::kActivation, values(16, 32, 1.0F));
          rank.session.step();
        });
    std::vector<Finding> findings = findings_of(*collected);
    std::erase_if(findings, [](const Finding& finding) { return finding.check != "I2"; });
    ASSERT_THAT(findings, SizeIs(1)) << direction;
    EXPECT_THAT(findings[0].ranks, ElementsAre(0)) << direction;
  }
}

TEST(InvariantGuard, I2LeavesScalesAloneThatMayDiffer) {
  // A row-parallel activation is split over the ranks, and nothing of it is gathered.
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = guard_yaml()}, [](SessionRank& rank) {
        LayerDescription description =
            with_recipe(rank.layer("proj", ParallelMode::kRow), RecipeKind::kCurrent);
        const LayerHandle layer = rank.session.layer(description, {current(), nullptr, nullptr});
        feed(layer, TensorKind::kActivation, values(4, 8, static_cast<float>(1 + rank.world.rank())));
        rank.session.step();
      });
  EXPECT_THAT(findings_of(*collected), IsEmpty());
}

/// One rank, one layer, one step after another; the body gets the quantizer of one tensor.
std::vector<Finding> on_one_rank(
    RecipeKind recipe, TensorKind tensor, std::shared_ptr<Quantizer> quantizer, int steps,
    const std::function<void(DebugQuantizer&, int step)>& body,
    const std::string& keys = "tensors: [activation, weight, gradient, output]") {
  const auto collected = run_sessions({.ranks = 1, .yaml = guard_yaml(keys)}, [&](SessionRank& rank) {
    LayerDescription description = with_recipe(rank.layer("fc1", ParallelMode::kNone), recipe);
    OperandQuantizers parents;
    (tensor == TensorKind::kWeight ? parents.weight : parents.activation) = quantizer;
    const LayerHandle layer = rank.session.layer(description, parents);
    for (int step = 0; step < steps; ++step) {
      DebugQuantizer* debug = layer.quantizer(tensor);
      ASSERT_NE(debug, nullptr);
      body(*debug, step);
      rank.session.step();
    }
  });
  return findings_of(*collected);
}

Float8Tensor& float8_of(QuantizedTensor& operand) {
  return dynamic_cast<Float8Tensor&>(*dynamic_cast<DebugQuantizedTensor&>(operand).get_tensor(false));
}

/// The same codes with zeros in the columnwise copy.
void wipe_columnwise(QuantizedTensor& operand) {
  Float8Tensor& codes = float8_of(operand);
  Tensor zeros(codes.format(Direction::kColumnwise), codes.codes(Direction::kColumnwise).shape());
  codes.assign(codes.codes(Direction::kRowwise).clone(), std::move(zeros), codes.scale(), codes.scale_inv());
}

TEST(InvariantGuard, I3SeesAColumnwiseCopyOfZeros) {  // cases.md case 33
  const Tensor ones = values(32, 32, 1.0F);
  const auto findings = on_one_rank(
      RecipeKind::kCurrent, TensorKind::kWeight, current(), 1,
      [&](DebugQuantizer& debug, int) {
        const auto operand = debug.quantize(ones, {true, true}, {});
        wipe_columnwise(*operand);
        debug.inspect_reuse(ones, *operand, {Phase::kForward, 1});
      },
      "checks: [I3], tensors: [weight]");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I3");
  EXPECT_EQ(findings[0].microbatch, 1);
  EXPECT_THAT(findings[0].what, HasSubstr("columnwise copy"));
}

TEST(InvariantGuard, I4TellsBytesFromPrecision) {
  const Tensor x = values(8, 16);
  const Tensor other = values(8, 16, 0.3F);
  const auto bytes = on_one_rank(
      RecipeKind::kCurrent, TensorKind::kActivation, current(), 2, [&](DebugQuantizer& debug, int step) {
        static_cast<void>(debug.quantize(x, {true, false}, {Phase::kForward, 0}));
        static_cast<void>(debug.quantize(step == 0 ? x : other, {true, true}, {Phase::kRecompute, 0}));
      });
  ASSERT_THAT(bytes, SizeIs(1));
  EXPECT_EQ(bytes[0].check, "I4");
  EXPECT_EQ(bytes[0].iteration, 1);
  EXPECT_THAT(bytes[0].what, HasSubstr("differs from the forward in its bytes"));

  // The same quantizer under two formats stands for a recompute in another precision.
  class TwoFormats final : public Quantizer {
   public:
    std::shared_ptr<QuantizedTensor> quantize(const TensorView& view, Usage usage,
                                              const TensorMoment& moment) override {
      if (moment.phase == Phase::kRecompute) return std::make_shared<HighPrecisionTensor>(view);
      return quantize_float8(view, DType::kE4M3, 1.0F, usage);
    }
    void update(const TensorView&, QuantizedTensor&, const TensorMoment&) override {}
    RecipeKind recipe() const noexcept override { return RecipeKind::kCurrent; }
    DType format() const noexcept override { return DType::kE4M3; }
  };
  const auto precision =
      on_one_rank(RecipeKind::kCurrent, TensorKind::kActivation, std::make_shared<TwoFormats>(), 1,
                  [&](DebugQuantizer& debug, int) {
                    static_cast<void>(debug.quantize(x, {true, false}, {Phase::kForward, 0}));
                    static_cast<void>(debug.quantize(x, {true, false}, {Phase::kRecompute, 0}));
                  });
  ASSERT_THAT(precision, SizeIs(1));
  EXPECT_THAT(precision[0].what, HasSubstr("the forward had e4m3, the recompute has f32"));
}

TEST(InvariantGuard, I5SeesAScaleBeyondTheFormat) {  // cases.md case 34: 448 where the format ends at 240
  class TooLarge final : public Quantizer {
   public:
    std::shared_ptr<QuantizedTensor> quantize(const TensorView& view, Usage usage,
                                              const TensorMoment&) override {
      return quantize_float8(view, DType::kE4M3, 448.0F * 448.0F / 240.0F, usage);  // amax is 1
    }
    void update(const TensorView&, QuantizedTensor&, const TensorMoment&) override {}
    RecipeKind recipe() const noexcept override { return RecipeKind::kCurrent; }
    DType format() const noexcept override { return DType::kE4M3; }
  };
  Tensor x = values(4, 4, 0.0F);
  x.values<float>()[3] = -1.0F;
  const auto findings = on_one_rank(RecipeKind::kCurrent, TensorKind::kActivation,
                                    std::make_shared<TooLarge>(), 1, [&](DebugQuantizer& debug, int) {
                                      static_cast<void>(debug.quantize(x, {true, true}, {}));
                                    });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I5");
  EXPECT_THAT(findings[0].what, HasSubstr("1.867 times too large for e4m3"));
}

struct Delayed {
  DelayedScalingState state;
  std::shared_ptr<Float8Quantizer> quantizer;
  explicit Delayed(int length)
      : state({.history_length = length}, nullptr),
        quantizer(std::make_shared<Float8Quantizer>(state, state.add("x", DType::kE4M3))) {}
};

TEST(InvariantGuard, I6FollowsAHealthyHistoryThroughSpikesZerosAndInf) {
  for (const int length : {1, 2, 3, 5}) {
    Delayed delayed(length);
    const std::vector<float> amaxes = {1, 2, 100, 0, 3, 3, 0.5F, HUGE_VALF, 1, 1, 1, 1, 1, 1, 7};
    const auto findings =
        on_one_rank(RecipeKind::kDelayed, TensorKind::kActivation, delayed.quantizer,
                    static_cast<int>(amaxes.size()), [&](DebugQuantizer& debug, int step) {
                      const Tensor x = Tensor::of<float>({amaxes[step], 0}, {1, 2});
                      static_cast<void>(debug.quantize(x, {true, true}, {}));
                      static_cast<void>(debug.quantize(x, {true, true}, {Phase::kForward, 1}));
                      delayed.state.update();
                    });
    EXPECT_THAT(findings, IsEmpty()) << "history of " << length;
  }
}

TEST(InvariantGuard, I6SeesAHistoryThatDoesNotRoll) {
  Delayed delayed(4);
  const auto findings =
      on_one_rank(RecipeKind::kDelayed, TensorKind::kActivation, delayed.quantizer, 4,
                  [&](DebugQuantizer& debug, int step) {
                    const Tensor x = Tensor::of<float>({2.0F + static_cast<float>(step), 0}, {1, 2});
                    static_cast<void>(debug.quantize(x, {true, true}, {}));
                    if (step != 1) delayed.state.update();
                  });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I6");
  EXPECT_EQ(findings[0].iteration, 2);
  EXPECT_THAT(findings[0].what, HasSubstr("did not roll after iteration 1"));
}

TEST(InvariantGuard, I7SeesCodesOfAnOlderWeight) {
  Tensor weight = values(16, 16);
  const auto findings =
      on_one_rank(RecipeKind::kCurrent, TensorKind::kWeight, current(), 1, [&](DebugQuantizer& debug, int) {
        const auto operand = debug.quantize(weight, {true, true}, {});
        debug.inspect_reuse(weight, *operand, {Phase::kForward, 1});
        weight.values<float>()[7] += 0.125F;
        debug.inspect_reuse(weight, *operand, {Phase::kForward, 2});
      });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I7");
  EXPECT_EQ(findings[0].microbatch, 2);
  EXPECT_THAT(findings[0].what, HasSubstr("not the cast of the weight's values of now"));
}

TEST(InvariantGuard, I7SeesCodesThatSomethingHasWrittenTo) {
  const Tensor weight = values(16, 16);
  const auto findings = on_one_rank(
      RecipeKind::kCurrent, TensorKind::kWeight, current(), 1,
      [&](DebugQuantizer& debug, int) {
        const auto operand = debug.quantize(weight, {true, true}, {});
        wipe_columnwise(*operand);
        debug.inspect_reuse(weight, *operand, {Phase::kBackward, 0});
      },
      "checks: [I7], tensors: [weight]");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(findings[0].what, HasSubstr("the columnwise codes have changed"));
}

TEST(InvariantGuard, I7AcceptsWhatAFeatureMakesOfAWeight) {
  const std::string yaml =
      "all: {enabled: true, layers: {layer_types: [all]}, transformer_engine: {FakeQuant: {enabled: true, "
      "gemms: "
      "[fprop], tensors: [weight], quant_format: FP8E4M3}, InvariantGuard: {enabled: true, tensors: "
      "[weight]}}}";
  const auto collected = run_sessions({.ranks = 1, .yaml = yaml}, [](SessionRank& rank) {
    const LayerHandle layer = rank.session.layer(rank.layer("fc1", ParallelMode::kNone));
    for (int step = 0; step < 2; ++step) {
      feed(layer, TensorKind::kWeight, values(8, 8, 0.1F * static_cast<float>(step)));
      rank.session.step();
    }
  });
  EXPECT_THAT(findings_of(*collected), IsEmpty());
}

TEST(InvariantGuard, I8NamesTheScalarAndTheRank) {
  const auto collected = run_sessions({.ranks = 3, .sizes = {}, .yaml = guard_yaml()}, [](SessionRank& rank) {
    for (int step = 0; step < 2; ++step) {
      rank.session.scalar("loss", step == 1 && rank.world.rank() == 2 ? 2.5 : 2.0);
      rank.session.scalar("tokens_per_second", rank.world.rank());  // nobody said that these agree
      rank.session.step();
    }
  });
  const auto findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I8");
  EXPECT_EQ(findings[0].iteration, 1);
  EXPECT_THAT(findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(findings[0].what, HasSubstr("loss should be the same on all ranks"));
}

TEST(InvariantGuard, I9ComparesARestartWithWhatWasSaved) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "invariant_guard_i9";
  std::filesystem::create_directories(dir);
  const auto run = [&](Delayed& delayed, int first, int steps, bool load) {
    const auto collected = run_sessions(
        {.ranks = 1, .yaml = guard_yaml("checks: [I6, I9], tensors: [activation]")}, [&](SessionRank& rank) {
          LayerDescription description =
              with_recipe(rank.layer("fc1", ParallelMode::kNone), RecipeKind::kDelayed);
          const LayerHandle layer = rank.session.layer(description, {delayed.quantizer, nullptr, nullptr});
          if (load) rank.session.load_state(dir);
          for (int step = first; step < first + steps; ++step) {
            EXPECT_EQ(rank.session.iteration(), step);
            feed(layer, TensorKind::kActivation,
                 Tensor::of<float>({1.0F + static_cast<float>(step), 0}, {1, 2}));
            delayed.state.update();
            rank.session.step();
          }
          if (!load) rank.session.save_state(dir);
        });
    return findings_of(*collected);
  };
  Delayed first(4);
  EXPECT_THAT(run(first, 0, 3, false), IsEmpty());
  EXPECT_THAT(run(first, 3, 2, true), IsEmpty());  // the same histories go on
  Delayed forgotten(4);                            // a restart that lost them
  const auto findings = run(forgotten, 3, 1, true);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "I9");
  EXPECT_EQ(findings[0].iteration, 3);
  EXPECT_THAT(findings[0].what, HasSubstr("after the restart the scale is 1, saved was"));
}

/// The recipe's own quantizer, with something done to what it makes.
class Tampered final : public Quantizer {
 public:
  using Tamper = std::function<void(BlockScaledCodes& rowwise, BlockScaledCodes& columnwise)>;
  Tampered(std::shared_ptr<Quantizer> inner, Tamper tamper)
      : inner_(std::move(inner)), tamper_(std::move(tamper)) {}
  std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                            const TensorMoment& moment) override {
    const auto made = inner_->quantize(x, usage, moment);
    const auto& tensor = dynamic_cast<const BlockScaledTensor&>(*made);
    const auto copy = [&](Direction direction) {
      const BlockScaledView view = tensor.blocks(direction);
      BlockScaledCodes codes{.codes = Tensor(view.codes.dtype(), view.codes.shape()),
                             .scales = Tensor(view.scales.dtype(), view.scales.shape()),
                             .layout = view.layout,
                             .tensor_scale = view.tensor_scale,
                             .rotated = view.rotated};
      std::memcpy(codes.codes.mutable_view().data(), view.codes.data(), view.codes.bytes());
      std::memcpy(codes.scales.mutable_view().data(), view.scales.data(), view.scales.bytes());
      return codes;
    };
    BlockScaledCodes rowwise = copy(Direction::kRowwise);
    BlockScaledCodes columnwise = copy(Direction::kColumnwise);
    tamper_(rowwise, columnwise);
    return std::make_shared<BlockScaledTensor>(x.shape(), recipe(), std::move(rowwise),
                                               std::move(columnwise));
  }
  void update(const TensorView&, QuantizedTensor&, const TensorMoment&) override {}
  RecipeKind recipe() const noexcept override { return inner_->recipe(); }
  DType format() const noexcept override { return inner_->format(); }

 private:
  std::shared_ptr<Quantizer> inner_;
  Tamper tamper_;
};

std::vector<Finding> with_blocks(RecipeKind recipe, const Tampered::Tamper& tamper) {
  const Tensor weight = values(64, 64);
  auto quantizer = std::make_shared<Tampered>(
      make_quantizer({.recipe = recipe, .tensor = TensorKind::kWeight, .name = "fc1.weight"}), tamper);
  return on_one_rank(recipe, TensorKind::kWeight, quantizer, 2, [&](DebugQuantizer& debug, int) {
    const auto operand = debug.quantize(weight, {true, true}, {});
    debug.inspect_reuse(weight, *operand, {Phase::kForward, 1});
  });
}

TEST(InvariantGuard, HonestBlocksOfEveryFormatAreFine) {
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    EXPECT_THAT(with_blocks(recipe, [](BlockScaledCodes&, BlockScaledCodes&) {}), IsEmpty())
        << to_string(recipe);
  }
}

TEST(InvariantGuard, I5SeesMxScalesRoundedDown) {
  const auto findings = with_blocks(RecipeKind::kMxfp8, [](BlockScaledCodes& rowwise, BlockScaledCodes&) {
    // One power of two less for every block: what is above half of the range saturates.
    for (std::uint8_t& scale : rowwise.scales.values<std::uint8_t>()) scale = scale > 0 ? scale - 1 : scale;
  });
  ASSERT_THAT(findings, ::testing::Not(IsEmpty()));
  std::vector<std::string> checks;
  for (const Finding& finding : findings) checks.push_back(finding.check);
  EXPECT_THAT(checks, ::testing::Contains("I5"));
}

TEST(InvariantGuard, I3SeesAStaleColumnwiseCopyOfBlocks) {
  const auto findings = with_blocks(RecipeKind::kMxfp8, [](BlockScaledCodes&, BlockScaledCodes& columnwise) {
    std::ranges::fill(columnwise.codes.values<std::uint8_t>(), std::uint8_t{0});
  });
  std::vector<std::string> checks;
  for (const Finding& finding : findings) checks.push_back(finding.check);
  EXPECT_THAT(checks, ::testing::Contains("I3"));
  EXPECT_THAT(checks, ::testing::Contains("I7"));  // nor is it the cast of the weight
}

TEST(InvariantGuard, AddsNoCollectiveBesideTheStepsOwn) {
  const auto calls = [](const std::string& yaml) {
    std::uint64_t result = 0;
    run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = yaml}, [&](SessionRank& rank) {
      LayerDescription description = with_recipe(rank.layer("fc1"), RecipeKind::kCurrent);
      const LayerHandle layer = rank.session.layer(description, {current(), current(), current()});
      const auto step = [&] {
        feed(layer, TensorKind::kActivation, values(8, 16));
        feed(layer, TensorKind::kWeight, values(8, 16));
        rank.session.scalar("loss", 1);
        rank.session.step();
      };
      step();
      const std::uint64_t before = rank.debug_calls();
      step();
      if (rank.world.rank() == 0) result = rank.debug_calls() - before;
    });
    return result;
  };
  EXPECT_EQ(calls(guard_yaml("tensors: [activation, weight], freq: 100")), 0U);
  // One MAX for each of the groups: tp and the stage (here the same ranks), and nothing for dp of one rank.
  EXPECT_LE(calls(guard_yaml("tensors: [activation, weight]")), 2U);
}

}  // namespace
}  // namespace amaxscope::testing

// Two runs written line by line: which place is first, what is named, what is not compared.
#include "report/diff.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "report/diff_text.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using test::RunFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Values {
  double layer1 = 4;
  double layer2 = 6;
  double gradient2 = 0.5;
  double gradient1 = 0.25;
  double loss = 2;
};

void describe(const RunFolder& folder, int tp, const std::string& options,
              const std::string& config = "a: 1\nb: 2\n") {
  std::string text = config;
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\\n");
  folder.write("run.json",
               fmt::format(R"({{"schema_version":1,"runs":[{{"run_id":"r","state":"closed","start":"s",
    "first_iteration":0,"last_iteration":9,"world_size":{0},"parallel":{{"dp_cp":1,"pp":1,"tp":{0}}},
    "options":{{{1}}},"config":{{"source":"x.yaml","digest":"0","text":"{2}"}},"section_layers":{{}},
    "alters_numerics":[],"other_paths":[]}}]}})",
                           tp, options, text));
  folder.write("metrics/rank_0.jsonl", "{\"schema_version\":1,\"run_id\":\"r\",\"rank\":0}\n");
}

const std::string kPlain = R"("recipe":"none","dtype":"f32")";

std::string amax(double value) {
  return fmt::format(R"("cur_amax":{0},"l2_norm":{1},"peak_rms":4)", value, 10 * value);
}

void step(const RunFolder& folder, int iteration, const Values& values) {
  folder.record(iteration, "decoder.layers.2.fc", "activation", amax(values.layer2));
  folder.record(iteration, "decoder.layers.2.fc", "gradient", amax(values.gradient2));
  folder.record(iteration, "decoder.layers.1.fc", "activation", amax(values.layer1));
  folder.record(iteration, "decoder.layers.1.fc", "gradient", amax(values.gradient1));
  folder.scalars(iteration, fmt::format(R"("loss":{},"checked/I1":4)", values.loss));
  folder.end_of_step(iteration);
}

class Runs : public ::testing::Test {
 protected:
  RunFolder a;
  RunFolder b;
  void start(int tp_a = 1, int tp_b = 1) {
    describe(a, tp_a, kPlain);
    describe(b, tp_b, kPlain);
  }
  [[nodiscard]] Diff diff() const { return compare_runs(a.path(), b.path()); }
};

TEST_F(Runs, TheSame) {
  start();
  for (int i = 0; i < 3; ++i) {
    step(a, i, {});
    step(b, i, {.layer1 = 4 * (1 + 0x1p-24)});
  }
  const Diff found = diff();
  EXPECT_FALSE(found.differs());
  EXPECT_EQ(found.iterations, 3U);
  EXPECT_EQ(found.values, 3U * (4 * 3 + 1));
  EXPECT_EQ(found.places, 4U);
  EXPECT_THAT(found.header, IsEmpty());
  EXPECT_THAT(as_text(found, "a", "b"), HasSubstr("same: no statistic differs"));
}

TEST_F(Runs, ThePlaceThatAStepComputesFirstIsFirst) {
  start();
  step(a, 0, {});
  step(b, 0, {});
  step(a, 1, {});
  step(b, 1, {.layer1 = 5, .layer2 = 9, .gradient2 = 1, .gradient1 = 2, .loss = 3});
  const Diff found = diff();
  ASSERT_TRUE(found.differs());
  EXPECT_EQ(found.first.front().iteration, 1);
  EXPECT_EQ(found.first.front().place, (Place{"decoder.layers.1.fc", "activation"}))
      << "although the file has layer 2 before it";
  std::vector<Place> after;
  for (const Departure& each : found.follows) after.push_back(each.place);
  EXPECT_THAT(
      after, ElementsAre(Place{"decoder.layers.2.fc", "activation"}, Place{"decoder.layers.2.fc", "gradient"},
                         Place{"decoder.layers.1.fc", "gradient"}))
      << "backward goes against the order of the layers";
  ASSERT_EQ(found.scalars.size(), 1U);
  EXPECT_EQ(found.scalars[0].stat, "loss");
  EXPECT_EQ(found.places_apart, 4U);
  EXPECT_THAT(as_text(found, "a", "b"),
              HasSubstr("they part at iteration 1: decoder.layers.1.fc activation (forward)"));
}

class BarelyApart : public Runs {
 protected:
  static std::string other_amax(double value) {
    return fmt::format(R"("cur_amax":{},"l2_norm":60,"peak_rms":4)", value);
  }
  /// The last step of b, in which one value is apart, by the first power of two that is.
  void lone_value(int iteration) {
    for (double by = 0x1p-30; by < 64; by *= 2) {
      RunFolder one;
      RunFolder other;
      describe(one, 1, kPlain);
      describe(other, 1, kPlain);
      for (int i = 0; i <= iteration; ++i) step(one, i, {});
      for (int i = 0; i < iteration; ++i) step(other, i, {});
      other.record(iteration, "decoder.layers.2.fc", "activation", other_amax(6 * (1 + by)));
      other.end_of_step(iteration);
      const Diff found = compare_runs(one.path(), other.path());
      if (found.barely.empty() && found.first.empty()) continue;
      b.record(iteration, "decoder.layers.2.fc", "activation", other_amax(6 * (1 + by)));
      b.end_of_step(iteration);
      return;
    }
    FAIL() << "nothing is ever apart";
  }
};

TEST_F(BarelyApart, OneValueOfManyIsSaidAndNotTakenForADifference) {
  start();
  for (int i = 0; i < 3; ++i) step(a, i, {});
  step(b, 0, {});
  lone_value(1);
  step(b, 2, {});
  const Diff found = diff();
  EXPECT_FALSE(found.differs());
  ASSERT_EQ(found.barely.size(), 1U);
  EXPECT_EQ(found.barely.front().iteration, 1);
  EXPECT_GT(found.barely.front().excess(), 1.0);
  EXPECT_LT(found.barely.front().excess(), Diff::kClear);
  EXPECT_THAT(as_text(found, "a", "b"), AllOf(HasSubstr("same: no statistic differs"), HasSubstr("barely")));
}

TEST_F(BarelyApart, WhatIsClearLaterIsWhereTheyPart) {
  start();
  for (int i = 0; i < 3; ++i) step(a, i, {});
  step(b, 0, {});
  lone_value(1);
  step(b, 2, {.layer1 = 9});
  const Diff found = diff();
  ASSERT_TRUE(found.differs());
  EXPECT_EQ(found.first.front().iteration, 2);
  EXPECT_EQ(found.first.front().place, (Place{"decoder.layers.1.fc", "activation"}));
  EXPECT_EQ(found.barely.size(), 1U);
}

TEST_F(BarelyApart, ManyAreADifferenceFromTheFirstOn) {
  start();
  for (int i = 0; i < 6; ++i) step(a, i, {});
  step(b, 0, {});
  for (int i = 1; i < 6; ++i) lone_value(i);
  const Diff found = diff();
  ASSERT_TRUE(found.differs());
  EXPECT_EQ(found.first.front().iteration, 1);
  EXPECT_THAT(found.barely, IsEmpty());
}

TEST_F(Runs, AFaultOfTheBackwardDoesNotAccuseTheForward) {
  start();
  step(a, 0, {});
  step(b, 0, {.gradient1 = 2});
  step(a, 1, {});
  step(b, 1, {.layer1 = 5, .layer2 = 9, .gradient2 = 1, .gradient1 = 2});
  EXPECT_EQ(diff().first.front().place, (Place{"decoder.layers.1.fc", "gradient"}));
  EXPECT_EQ(diff().first.front().iteration, 0);
}

TEST_F(Runs, AnExactRatioIsNamed) {
  start(/*tp_a=*/1, /*tp_b=*/3);
  step(a, 0, {});
  step(b, 0, {.gradient2 = 1.5});
  ASSERT_TRUE(diff().ratio);
  EXPECT_THAT(diff().ratio->name, HasSubstr("the ratio of the tp sizes (1 and 3)"));
  EXPECT_THAT(diff().ratio->stats, ::testing::UnorderedElementsAre("cur_amax", "l2_norm"));
  step(a, 1, {});
  EXPECT_THAT(as_text(diff(), "a", "b"), HasSubstr("B is 3.000 times A"));
}

TEST_F(Runs, RatiosOfSquareRootsAndScales) {
  start(1, 3);
  step(a, 0, {});
  step(b, 0, {.layer1 = 4 / std::sqrt(3.0)});
  ASSERT_TRUE(diff().ratio);
  EXPECT_THAT(diff().ratio->name, HasSubstr("the square root of the ratio of the tp sizes"));
  RunFolder c;
  describe(c, 1, kPlain);
  step(c, 0, {.layer1 = 4 * 65536.0});
  const Diff scaled = compare_runs(a.path(), c.path());
  ASSERT_TRUE(scaled.ratio);
  EXPECT_THAT(scaled.ratio->name, HasSubstr("a power of two (2^16)"));
  RunFolder d;
  describe(d, 1, kPlain);
  step(d, 0, {.layer1 = 4 * 1.2345});
  EXPECT_FALSE(compare_runs(a.path(), d.path()).ratio) << "a number that means nothing is not named";
}

TEST_F(Runs, WhatTheyWereToldDifferently) {
  describe(a, 1, R"("recipe":"none","dtype":"f32","save-dir":"x")");
  describe(b, 2, R"("recipe":"delayed","dtype":"f32","save-dir":"y")", "a: 1\nb: 3\n");
  step(a, 0, {});
  step(b, 0, {});
  std::vector<std::string> what;
  for (const HeaderDifference& each : diff().header) what.push_back(each.what);
  EXPECT_THAT(what, ElementsAre("ranks", "size of tp", "option recipe", "debug config, from line 2"));
  EXPECT_EQ(diff().precision, (Precision{.bf16 = false, .used = {true, true, false, false}})) << "of both";
  EXPECT_EQ(to_string(diff().precision), "f32, high precision, scales for each tensor");
}

TEST_F(Runs, PartialSumsAreNotComparedAcrossOtherSplits) {
  start(1, 2);
  const auto partial = [](const RunFolder& folder, double value) {
    folder.line(fmt::format(
        R"({{"iteration":0,"layer":"x","tensor":"output","phase":"forward","stats":{{"cur_amax":{}}},)"
        R"("flags":{{}},"recipe":"none","group":[0],"layout":"partial"}})",
        value));
    folder.end_of_step(0);
  };
  partial(a, 1);
  partial(b, 7);
  EXPECT_EQ(diff().values, 0U);
  EXPECT_THAT(diff().skipped, ElementsAre(HasSubstr("1 times partial sums")));
  EXPECT_THAT(as_text(diff(), "a", "b"), HasSubstr("nothing to compare"));
}

TEST_F(Runs, StepsOfTheirOwnAndStepsThatWereCutOff) {
  start();
  step(a, 0, {});
  step(a, 1, {});
  step(b, 1, {});
  step(b, 2, {});
  b.record(3, "decoder.layers.1.fc", "activation", amax(9));  // no end of the step
  const Diff found = diff();
  EXPECT_EQ(found.iterations, 1U);
  EXPECT_EQ(found.only_a, 1U);
  EXPECT_EQ(found.only_b, 1U);
  EXPECT_FALSE(found.differs());
}

TEST_F(Runs, TensorsOfOneOnlyAreSaid) {
  start();
  step(a, 0, {});
  a.record(1, "decoder.layers.3.fc", "activation", amax(1));
  a.end_of_step(1);
  step(b, 0, {});
  step(b, 1, {});
  EXPECT_THAT(diff().skipped, Contains(AllOf(HasSubstr("in A only: decoder.layers.3.fc activation"))));
}

TEST_F(Runs, PerturbedRunsMakeTheTolerance) {
  start();
  RunFolder noisy;
  describe(noisy, 1, kPlain);
  for (int i = 0; i < 3; ++i) {
    step(a, i, {});
    // Activations move by a hundredth; the loss does not.
    step(noisy, i, {.layer1 = 4.04});
    step(b, i,
         i < 2 ? Values{.layer2 = 6.4} : Values{.layer2 = 6.6});  // 6 and 9 %: below and above 8 times that
  }
  const Diff found = compare_runs(a.path(), b.path(), {.perturbed = {noisy.path()}, .until = {}});
  EXPECT_TRUE(found.measured_noise);
  ASSERT_TRUE(found.differs());
  EXPECT_EQ(found.first.front().iteration, 2);
  EXPECT_NEAR(found.first.front().tolerance, 8 * 0.04 / 4.04, 1e-12);
  EXPECT_FALSE(compare_runs(a.path(), b.path(), {.perturbed = {noisy.path()}, .until = 1}).differs());
  EXPECT_TRUE(diff().differs()) << "by the table, that is no rounding";
}

TEST_F(Runs, ANanOnOneSide) {
  start();
  step(a, 0, {});
  b.record(0, "decoder.layers.1.fc", "activation", R"("cur_amax":"NaN")");
  b.end_of_step(0);
  const Diff found = diff();
  ASSERT_TRUE(found.differs());
  EXPECT_THAT(as_json(found), AllOf(HasSubstr(R"("b": "NaN")"), HasSubstr(R"("distance": "Infinity")")));
}

TEST_F(Runs, NoDirectory) { EXPECT_THROW(static_cast<void>(compare_runs(a.path(), "/nonexistent")), Error); }

}  // namespace
}  // namespace amaxscope::report

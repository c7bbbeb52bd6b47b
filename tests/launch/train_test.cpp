// Whole trainings through the command line.
#include <cmath>

#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using Train = TrainFixture;

constexpr const char* kStatistics = "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-";

void expect_sound(const nlohmann::json& run, int world, int tp, std::size_t steps) {
  ASSERT_TRUE(run.is_object());
  EXPECT_EQ(run.at("world"), world);
  EXPECT_EQ(run.at("tp"), tp);
  ASSERT_EQ(run.at("losses").size(), steps);
  // A byte-level model knows nothing at first: ln 256 = 5.545 nats.
  EXPECT_NEAR(run.at("losses").at(0).get<double>(), std::log(256.0), 0.3);
  EXPECT_LT(run.at("losses").back().get<double>(), run.at("losses").at(0).get<double>());
}

TEST_F(Train, OneRankWithoutMpirun) {
  const ProgramResult result = amaxscope(small({"--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_sound(nlohmann::json::parse(result.out), 1, 1, 3);
}

TEST_F(Train, TwoRanksTensorParallelUnderEachRecipe) {
  for (const char* recipe : {"none", "delayed", "current"}) {
    SCOPED_TRACE(recipe);
    expect_sound(trained(2, {"--tp", "2", "--recipe", recipe}), 2, 2, 3);
  }
  // Blocks want multiples of 32.
  for (const char* recipe : {"mxfp8", "block", "nvfp4"}) {
    SCOPED_TRACE(recipe);
    expect_sound(trained(2, {"--tp", "2", "--recipe", recipe, "--hidden", "64", "--seq", "32"}), 2, 2, 3);
  }
}

TEST_F(Train, FourRanksWithSequenceParallelismAndMicroBatches) {
  expect_sound(trained(4, {"--tp", "4", "--sequence-parallel", "--micro-batches", "4"}), 4, 4, 3);
  expect_sound(trained(4, {"--tp", "2", "--sequence-parallel"}), 4, 2, 3);
}

TEST_F(Train, EightRanksAsTwoReplicas) {
  expect_sound(trained(8, {"--tp", "4", "--config", "observe.yaml", "--log-dir", "logs"}), 8, 4, 3);
}

TEST_F(Train, Bf16RmsNormAndExactGemms) {
  expect_sound(trained(2, {"--tp", "2", "--dtype", "bf16", "--norm", "rms"}), 2, 2, 3);
  expect_sound(trained(2, {"--tp", "2", "--gemm", "exact"}), 2, 2, 3);
}

TEST_F(Train, SwigluRotaryPositionsAndQkNormWithAndWithoutRecompute) {
  const std::vector<std::string> modern = {"--tp",   "2",         "--mlp",  "swiglu",
                                           "--rope", "--qk-norm", "--norm", "rms"};
  std::vector<std::string> recomputing = modern;
  recomputing.emplace_back("--recompute");
  const nlohmann::json plain = trained(2, modern);
  expect_sound(plain, 2, 2, 3);
  EXPECT_EQ(trained(2, recomputing).at("weights_digest"), plain.at("weights_digest"));
}

TEST_F(Train, ExpertsTrainOnFourRanks) {
  expect_sound(trained(4, {"--tp", "2", "--sequence-parallel", "--experts", "4", "--top-k", "2",
                           "--fp8-weights", "--config", "observe.yaml", "--log-dir", "logs"}),
               4, 2, 3);
  expect_sound(trained(2, {"--tp", "2", "--experts", "3", "--recipe", "mxfp8", "--preset", "full",
                           "--log-dir", "full", "--batch", "4", "--hidden", "64"}),
               2, 2, 3);
}

TEST_F(Train, EvaluationIsReportedAndChangesNoWeight) {
  const nlohmann::json plain = trained(2, {"--tp", "2"});
  const nlohmann::json evaluated = trained(2, {"--tp", "2", "--eval-every", "2"});
  EXPECT_EQ(evaluated.at("weights_digest"), plain.at("weights_digest"));
  EXPECT_EQ(evaluated.at("losses"), plain.at("losses"));
  ASSERT_EQ(evaluated.at("evaluations").size(), 2U);
  EXPECT_EQ(evaluated.at("evaluations")[1].at("step"), 2);
  EXPECT_NEAR(evaluated.at("evaluations")[0].at("loss").get<double>(), std::log(256.0), 0.3);
  EXPECT_FALSE(plain.contains("evaluations"));
}

TEST_F(Train, GoingOnFromASavedStateEqualsNotHavingStopped) {
  const nlohmann::json whole =
      trained(2, {"--tp", "2", "--steps", "5", "--save-every", "2", "--save-dir", "states"});
  const nlohmann::json rest = trained(2, {"--tp", "2", "--steps", "5", "--resume", "states/iter_000002"});
  EXPECT_EQ(rest.at("weights_digest"), whole.at("weights_digest"));
  ASSERT_EQ(rest.at("losses").size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.at("losses")[i], whole.at("losses")[i + 2]);
  const nlohmann::json newest = trained(2, {"--tp", "2", "--steps", "5", "--resume", "states"});
  EXPECT_EQ(newest.at("losses").size(), 1U);
  EXPECT_EQ(newest.at("weights_digest"), whole.at("weights_digest"));
  const ProgramResult done = amaxscope_job(2, small({"--tp", "2", "--steps", "4", "--resume", "states"}));
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("4 steps are done, and --steps is 4"));
  const ProgramResult other = amaxscope_job(2, small({"--steps", "5", "--resume", "states"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("was saved with tp 2, this training has 1"));
}

TEST_F(Train, PipelineStagesEndWithTheLossesOfOne) {
  const std::vector<std::string> common = {
      "--layers", "4",           "--micro-batches", "3", "--gemm",
      "exact",    "--recompute", "--eval-every",    "2", "--sequence-parallel"};
  const auto with = [&](int ranks, std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return trained(ranks, more);
  };
  const nlohmann::json one = with(1, {});
  for (const char* stages : {"2", "4"}) {
    SCOPED_TRACE(stages);
    const nlohmann::json run = with(std::stoi(stages), {"--pp", stages});
    EXPECT_EQ(run.at("losses"), one.at("losses"));
    EXPECT_EQ(run.at("evaluations"), one.at("evaluations"));
    EXPECT_EQ(run.at("pp"), std::stoi(stages));
  }
  EXPECT_EQ(with(4, {"--tp", "2", "--pp", "2"}).at("losses"), with(2, {"--tp", "2"}).at("losses"));
}

TEST_F(Train, APipelineRunGoesOnFromItsSavedState) {
  const std::vector<std::string> common = {"--layers",        "2", "--pp",    "2", "--tp", "2",
                                           "--micro-batches", "2", "--steps", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  const nlohmann::json whole = trained(4, with({"--save-every", "2", "--save-dir", "states"}));
  const nlohmann::json rest = trained(4, with({"--resume", "states/iter_000002"}));
  EXPECT_EQ(rest.at("weights_digest"), whole.at("weights_digest"));
  const ProgramResult other = amaxscope_job(
      4, small({"--layers", "2", "--tp", "4", "--steps", "4", "--resume", "states/iter_000002"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("was saved with pp 2, this training has 1"));
}

// cases.md case 14, on processes.
TEST_F(Train, SectionsOfOnePipelineStageAreAccepted) {
  write("second.yaml", R"(second:
  enabled: True
  layers: {layer_name_regex_pattern: 'layers\.2\.'}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [weight], stats: [max]}
nobody:
  enabled: True
  layers: {layer_name_regex_pattern: 'layers\.3\.'}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [weight], stats: [max]}
)");
  const ProgramResult result = amaxscope_job(
      4, small({"--pp", "2", "--tp", "2", "--layers", "2", "--config", "second.yaml", "--log-dir", "logs"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("section \"nobody\" matched no layer on any rank"));
  EXPECT_THAT(result.err, Not(HasSubstr("section \"second\"")));
  EXPECT_THAT(result.out, HasSubstr("on 4 ranks (tp 2, pp 2)"));
  const nlohmann::json run = nlohmann::json::parse(read("logs/run.json"))["runs"][0];
  EXPECT_EQ(run["section_layers"]["second"].size(), 4U);
}

// Each layer once a step in the files of all ranks together, the scalars once.
TEST_F(Train, PipelineStagesLogTogetherWhatOneLogs) {
  const std::vector<std::string> common = {"--layers", "2",        "--micro-batches",
                                           "2",        "--config", "observe.yaml"};
  const auto records = [&](int ranks, std::vector<std::string> more, const std::string& log_dir) {
    more.insert(more.end(), common.begin(), common.end());
    more.insert(more.end(), {"--log-dir", log_dir});
    trained(ranks, more);
    std::map<std::string, int> count;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string file = log_dir + "/metrics/rank_" + std::to_string(rank) + ".jsonl";
      if (!exists(file)) continue;
      for (const std::string& line : lines_of(read(file))) {
        const nlohmann::json json = nlohmann::json::parse(line);
        if (!json.contains("iteration") || json.contains("end_of_step") || json.contains("end_of_run"))
          continue;
        const std::string what = json.contains("layer")
                                     ? json.at("layer").get<std::string>() + " " +
                                           json.at("tensor").get<std::string>() + json.at("stats").dump()
                                     : json.dump();
        ++count[json.at("iteration").dump() + " " + what];
      }
    }
    return count;
  };
  const auto one = records(1, {}, "one");
  EXPECT_GE(one.size(), 3U * 4U * 3U);
  EXPECT_EQ(records(2, {"--pp", "2"}, "two"), one);
  const nlohmann::json run = nlohmann::json::parse(read("two/run.json"))["runs"][0];
  EXPECT_EQ(run["section_layers"]["ranges"].size(), 4U);
  EXPECT_EQ(run["parallel"]["pp"], 2);
  EXPECT_THAT(
      read("two/nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log"),
      HasSubstr("section ranges matches: decoder.layers.1.mlp.linear_fc1, decoder.layers.1.mlp.linear_fc2, "
                "decoder.layers.2.mlp.linear_fc1, decoder.layers.2.mlp.linear_fc2"));
}

TEST_F(Train, TheSameSeedTrainsTheSameWeights) {
  const nlohmann::json first = trained(2, {"--tp", "2"});
  EXPECT_EQ(trained(2, {"--tp", "2"}).at("weights_digest"), first.at("weights_digest"));
  EXPECT_NE(trained(2, {"--tp", "2", "--seed", "2"}).at("weights_digest"), first.at("weights_digest"));
}

TEST_F(Train, WithoutAConfigTheRuntimeIsNotThere) {
  const nlohmann::json plain = trained(2, {"--tp", "2"});
  const nlohmann::json off = trained(2, {"--tp", "2", "--config", "observe.yaml", "--log-dir", "logs"},
                                     {.environment = {{"AMAXSCOPE", "off"}}});
  EXPECT_EQ(plain.at("collectives").at("debug"), 0);
  EXPECT_EQ(off.at("collectives"), plain.at("collectives"));
  EXPECT_EQ(off.at("weights_digest"), plain.at("weights_digest"));
  EXPECT_EQ(off.at("losses"), plain.at("losses"));
  EXPECT_TRUE(plain.at("log_dir").is_null());
  EXPECT_FALSE(exists("logs"));
  EXPECT_FALSE(exists("amaxscope_logs"));
}

TEST_F(Train, ObservingChangesNoWeight) {
  for (const std::vector<std::string>& how : {std::vector<std::string>{},
                                              {"--sequence-parallel", "--micro-batches", "4"},
                                              {"--recipe", "current"}}) {
    std::vector<std::string> plain = {"--tp", "2"};
    plain.insert(plain.end(), how.begin(), how.end());
    std::vector<std::string> observed = plain;
    observed.insert(observed.end(), {"--config", "observe.yaml"});
    const nlohmann::json without = trained(2, plain);
    const nlohmann::json with = trained(2, observed);
    EXPECT_EQ(with.at("weights_digest"), without.at("weights_digest"));
    EXPECT_EQ(with.at("losses"), without.at("losses"));
    EXPECT_EQ(with.at("collectives").at("trainer"), without.at("collectives").at("trainer"));
    EXPECT_EQ(with.at("collectives").at("recipe"), without.at("collectives").at("recipe"));
    EXPECT_GT(with.at("collectives").at("debug"), 0);
  }
}

TEST_F(Train, LogsAreThereAndWellFormed) {
  const nlohmann::json run =
      trained(2, {"--tp", "2", "--config", "observe.yaml", "--log-dir", "logs", "--steps", "4"});
  EXPECT_EQ(run.at("log_dir"), "logs");
  for (const char* rank : {"0", "1"}) {
    const std::vector<std::string> lines = lines_of(read(std::string("logs/") + kStatistics + rank + ".log"));
    // 2 layers; 3 tensors x 4 statistics in each of 4 steps, 2 tensors x 3 in every second.
    EXPECT_EQ(lines.size(), 2U * (12U * 4U + 6U * 2U)) << rank;
    for (const std::string& line : lines) {
      EXPECT_THAT(
          line,
          MatchesRegex("[0-9-]{10} [0-9:]{8},[0-9]{3} - INFO - decoder\\.layers\\.1\\.mlp\\.linear_fc[12]_"
                       "(activation|weight|gradient)_[a-z0-9_%]+ \t\t\t\t iteration=[0-9]{6} \t\t\t\t "
                       "value=-?[0-9.e+-]+"));
    }
  }
  // Each tensor once for the whole job.
  std::map<std::string, int> records;
  for (const char* rank : {"0", "1"}) {
    if (!exists(std::string("logs/metrics/rank_") + rank + ".jsonl")) continue;
    for (const std::string& line : lines_of(read(std::string("logs/metrics/rank_") + rank + ".jsonl"))) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (!record.contains("stats")) continue;
      ++records[record.at("layer").get<std::string>() + record.at("tensor").get<std::string>() +
                record.at("iteration").dump()];
      EXPECT_EQ(record.at("group"), (nlohmann::json{0, 1}));
      EXPECT_EQ(record.at("recipe"), "delayed");
    }
  }
  EXPECT_EQ(records.size(), 2U * 3U * 4U);
  for (const auto& [key, count] : records) EXPECT_EQ(count, 1) << key;

  const std::string run_file = read("logs/run.json");
  EXPECT_THAT(run_file, AllOf(HasSubstr("observe"), HasSubstr("cur_amax")));
  EXPECT_TRUE(nlohmann::json::accept(run_file));
}

TEST_F(Train, TextModeSaysWhatHappenedAndWhereTheLogsAre) {
  const ProgramResult result =
      amaxscope_job(2, small({"--tp", "2", "--config", "observe.yaml", "--steps", "20"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("step  1/20  loss"), HasSubstr("step 20/20  loss"),
                                HasSubstr("nats per byte, 20 steps"), HasSubstr("logs in amaxscope_logs/")));
  EXPECT_THAT(lines_of(result.out).back(), HasSubstr("amaxscope report amaxscope_logs/"));
  EXPECT_LT(lines_of(result.out).size(), 32U);
  EXPECT_TRUE(exists("amaxscope_logs"));
}

TEST_F(Train, ModifyingFeatureChangesTheTrainingAndIsListed) {
  write("fake.yaml", R"(fake:
  enabled: True
  layers: {layer_types: [linear_fc1]}
  transformer_engine:
    FakeQuant: {enabled: True, quant_format: FP8E5M2, gemms: [fprop], tensors: [activation, weight]}
)");
  const nlohmann::json plain = trained(2, {"--tp", "2", "--recipe", "none"});
  const nlohmann::json fake =
      trained(2, {"--tp", "2", "--recipe", "none", "--config", "fake.yaml", "--log-dir", "logs"});
  EXPECT_NE(fake.at("weights_digest"), plain.at("weights_digest"));
  EXPECT_THAT(read("logs/run.json"), HasSubstr("FakeQuant in section fake"));
}

TEST_F(Train, PlantedFaultReachesTheLayers) {
  const nlohmann::json sound = trained(2, {"--tp", "2"});
  const nlohmann::json faulty = trained(
      2, {"--tp", "2", "--inject", "scale_off@layer=decoder.layers.1.mlp.linear_fc1,k=6,iteration=1"});
  EXPECT_EQ(faulty.at("losses").at(0), sound.at("losses").at(0));
  EXPECT_NE(faulty.at("weights_digest"), sound.at("weights_digest"));
}

}  // namespace
}  // namespace amaxscope::test

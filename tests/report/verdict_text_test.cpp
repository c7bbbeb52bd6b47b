// What people and programs get to see.
#include "report/verdict_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "features/builtin.hpp"
#include "report/rules.hpp"
#include "runtime/config/config.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using test::RunFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// A run with every kind of finding at once, of many long names.
Verdict crowded() {
  const RunFolder folder;
  folder.describe(R"("recipe":"delayed","save-every":"20","save-dir":"states")");
  for (const char* check :
       {"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "first non-finite", "amax_jump"}) {
    for (int layer = 0; layer < 30; ++layer) {
      folder.finding(70, check, fmt::format("decoder.layers.{}.{}", layer, std::string(90, 'x')),
                     "activation", "1", std::string(300, 'y'),
                     R"("sets":"rank 0 against rank 1","copy":"columnwise")");
    }
  }
  for (int i = 0; i < 20; ++i) {
    for (const char* layer : {"a", "b", "c"}) {
      folder.record(5 * i, layer, "update", R"("lost_updates%":50)", "none");
      folder.record(5 * i, layer, "gradient", R"("nvfp4_rounding_correlation":0.5)", "nvfp4");
      folder.record(5 * i, layer, "activation",
                    R"("sqnr":20,"fp8_current_scaling_sqnr":31,"saturated_energy%":9,"flushed_energy%":9,)"
                    R"("outlier_channel_1_id":3,"outlier_channel_1_energy%":)" +
                        std::to_string(i < 10 ? 5 : 90),
                    "delayed", R"("format":"E4M3","formats":{"fp8_current_scaling_sqnr":"E4M3"})");
      folder.record(5 * i, layer, "weight", R"("sqnr":25,"fp8_block_scaling_sqnr":31)", "mxfp8",
                    R"("format":"E5M2+E8M0 scales","formats":{"fp8_block_scaling_sqnr":"E4M3+F32 scales"})");
      folder.record(5 * i, layer, "wgrad",
                    R"("error_from_accumulation%":90,"relative_error":0.9,"gradient_noise":0.9)", "delayed");
    }
    folder.healthy_step(5 * i, i < 10 ? 2 : 9, i == 9 ? 60 : 1);
  }
  return judge(folder.path());
}

TEST(VerdictText, IsAtMostTwentyFiveLinesOf110Columns) {
  const std::string text = as_text(crowded());
  const std::string before_yaml = text.substr(0, text.find("\n\n"));
  EXPECT_LE(std::ranges::count(before_yaml, '\n'), 25);
  std::istringstream lines(before_yaml);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
  EXPECT_THAT(text, StartsWith("run           a run, 2 ranks, tp 2, recipe delayed, iterations 0 to 95"));
  EXPECT_THAT(text, HasSubstr("\nlast good     states/iter_60\n"));
  EXPECT_THAT(text, HasSubstr("\nmoved first   0 "));
}

TEST(VerdictText, EveryYamlLoads) {
  const Verdict verdict = crowded();
  std::vector<Cause> causes = verdict.also;
  causes.push_back(*verdict.cause);
  ASSERT_GE(causes.size(), 15U);
  const FeatureRegistry registry = builtin_features();
  for (const Cause& cause : causes) {
    if (cause.yaml.empty()) continue;
    const Config config = load_config(cause.yaml, cause.kind, registry);
    EXPECT_THAT(config.warnings, IsEmpty()) << cause.kind;
    EXPECT_EQ(config.sections.size(), 1U) << cause.kind;
  }
}

TEST(VerdictText, EveryCauseSaysWhyAndWhatToDo) {
  const Verdict verdict = crowded();
  for (const Cause& cause : verdict.also) {
    EXPECT_FALSE(cause.sentence.empty()) << cause.kind;
    EXPECT_FALSE(cause.actions.empty()) << cause.kind;
    EXPECT_FALSE(cause.expect.empty()) << cause.kind;
    EXPECT_FALSE(cause.places.empty()) << cause.kind;
  }
}

TEST(VerdictText, TheShortFormNamesTheCommand) {
  const std::string text =
      as_short_text(crowded(), "logs/with a path that is long enough to be wrapped " + std::string(100, 'z'));
  EXPECT_LE(std::ranges::count(text, '\n'), 16);
  EXPECT_THAT(text, HasSubstr("amaxscope report logs/with a path that is long enough to be wrapped " +
                              std::string(100, 'z') + " --text\n"));
  EXPECT_THAT(text, Not(HasSubstr("enabled: True")));
}

TEST(VerdictJson, HasAVersionAndTheCause) {
  const nlohmann::json json = nlohmann::json::parse(as_json(crowded()));
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("outcome"), "found");
  EXPECT_EQ(json.at("cause").at("iteration"), 70);
  EXPECT_EQ(json.at("cause").at("kind"), "nonfinite");
  EXPECT_EQ(json.at("run").at("last_iteration"), 95);
  EXPECT_EQ(json.at("run").at("parallel").at("tp"), 2);
}

TEST(VerdictJson, IsThereWithoutData) {
  const RunFolder folder;
  const nlohmann::json json = nlohmann::json::parse(as_json(judge(folder.path())));
  EXPECT_EQ(json.at("outcome"), "no data");
  EXPECT_TRUE(json.at("cause").is_null());
}

}  // namespace
}  // namespace amaxscope::report

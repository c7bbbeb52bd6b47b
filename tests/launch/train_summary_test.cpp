#include "launch/train_summary.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrainSummary summary() {
  return {.losses = {5.5, 2.25},
          .seconds = 1.5,
          .world = 4,
          .tp = 2,
          .recipe = "delayed",
          .collectives = {7, 3, 1},
          .weights_digest = "00ff",
          .log_dir = "logs/x"};
}

TEST(TrainSummary, JsonIsOneLineWithEverything) {
  const std::string text = as_json(summary());
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("losses"), (nlohmann::json{5.5, 2.25}));
  EXPECT_EQ(json.at("world"), 4);
  EXPECT_EQ(json.at("tp"), 2);
  EXPECT_EQ(json.at("pp"), 1);
  EXPECT_EQ(json.at("collectives").at("trainer"), 7);
  EXPECT_EQ(json.at("collectives").at("recipe"), 3);
  EXPECT_EQ(json.at("collectives").at("debug"), 1);
  EXPECT_EQ(json.at("weights_digest"), "00ff");
  EXPECT_EQ(json.at("log_dir"), "logs/x");
}

TEST(TrainSummary, LossesThatAreNotFiniteAreStrings) {
  TrainSummary diverged = summary();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  diverged.losses = {std::numeric_limits<double>::quiet_NaN(), kInf, -kInf};
  EXPECT_EQ(nlohmann::json::parse(as_json(diverged)).at("losses"),
            (nlohmann::json{"NaN", "Infinity", "-Infinity"}));
}

TEST(TrainSummary, WithoutLogsNoPathIsNamed) {
  TrainSummary silent = summary();
  silent.log_dir.clear();
  EXPECT_TRUE(nlohmann::json::parse(as_json(silent)).at("log_dir").is_null());
  EXPECT_THAT(as_text(silent), Not(HasSubstr("nvdlfw")));
}

TEST(TrainSummary, TextNamesLossesTrafficAndLogs) {
  const std::string text = as_text(summary());
  EXPECT_THAT(text, HasSubstr("loss 5.5000 -> 2.2500"));
  EXPECT_THAT(text, HasSubstr("7 trainer, 3 recipe, 1 debug"));
  EXPECT_THAT(text, HasSubstr("logs in logs/x"));
  EXPECT_THAT(text, HasSubstr("on 4 ranks (tp 2), recipe delayed"));
  TrainSummary staged = summary();
  staged.pp = 2;
  EXPECT_THAT(as_text(staged), HasSubstr("on 4 ranks (tp 2, pp 2), recipe delayed"));
}

TEST(TrainSummary, TextNamesTheFoldersThatAreThere) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "nonfinite");
  TrainSummary dumped = summary();
  dumped.log_dir = folder.path().string();
  EXPECT_THAT(as_text(dumped), HasSubstr("\n  nonfinite/  "));
  EXPECT_THAT(as_text(dumped), Not(HasSubstr("events/")));
}

}  // namespace
}  // namespace amaxscope::launch

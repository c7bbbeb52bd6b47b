// `amaxscope report` on runs of `amaxscope train`, and the last lines of the training itself.
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportCommand : public TrainFixture {
 protected:
  /// Twelve steps on two ranks under the preset; the training's standard output.
  std::string train(const std::vector<std::string>& changes) const {
    std::vector<std::string> arguments = small(
        {"--tp", "2", "--sequence-parallel", "--steps", "12", "--preset", "diagnose", "--log-dir", "logs"});
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    const ProgramResult result = amaxscope_job(2, arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
};

TEST_F(ReportCommand, AHealthyRunEndsWithItsVerdictAndReportExitsWith0) {
  const std::string out = train({"--recipe", "current"});
  const std::vector<std::string> lines = lines_of(out);
  EXPECT_THAT(out, HasSubstr("\nverdict       nothing found in what was measured\n"));
  EXPECT_THAT(lines.back(), HasSubstr("amaxscope report logs --text"));
  const ProgramResult report = amaxscope({"report", "logs", "--text"});
  EXPECT_EQ(report.status, 0) << report.out;
  EXPECT_EQ(report.err, "");
  EXPECT_THAT(report.out, AllOf(HasSubstr("2 ranks, tp 2, recipe current, iterations 0 to 11"),
                                HasSubstr("I1 replicas, I2 shared scales")));
}

TEST_F(ReportCommand, APlantedFaultIsNamedWithItsPlace) {
  const std::string out =
      train({"--recipe", "mxfp8", "--hidden", "64", "--seq", "32", "--inject",
             "overwrite_columnwise@layer=decoder.layers.1.mlp.linear_fc2,rank=1,iteration=7"});
  EXPECT_THAT(
      out,
      HasSubstr("\nwhere         decoder.layers.1.mlp.linear_fc2 weight; rank 1; forward; GEMM dgrad\n"));
  const ProgramResult text = amaxscope({"report", "logs", "--text"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("\nsince         iteration 7\n"));
  const ProgramResult result = amaxscope({"report", "logs", "--json"});
  EXPECT_EQ(result.status, 1);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("cause").at("kind"), "nonfinite");
  EXPECT_EQ(json.at("cause").at("iteration"), 7);
  EXPECT_EQ(json.at("cause").at("ranks"), nlohmann::json::array({1}));

  const ProgramResult page = amaxscope({"report", "logs"});
  EXPECT_EQ(page.status, 1);
  EXPECT_THAT(
      lines_of(page.out),
      ElementsAre("logs/report.html", AllOf(HasSubstr("found: "), HasSubstr("since iteration 7 (certain)"))));
  EXPECT_GT(std::filesystem::file_size(folder_ / "logs" / "report.html"), 50'000U);
  EXPECT_EQ(amaxscope({"report", "logs", "-o", "elsewhere.html"}).status, 1);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "elsewhere.html"));
  const ProgramResult nowhere = amaxscope({"report", "logs", "--html", "nowhere/x.html"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_EQ(nowhere.out, "");
  EXPECT_THAT(lines_of(nowhere.err),
              ElementsAre(AllOf(HasSubstr("nowhere/x.html: cannot be written"), HasSubstr("--html FILE"))));
}

TEST_F(ReportCommand, TheVerdictIsInTheJsonOfATraining) {
  const nlohmann::json json =
      trained(2, {"--tp", "2", "--sequence-parallel", "--steps", "4", "--recipe", "current", "--preset",
                  "diagnose", "--log-dir", "logs", "--inject",
                  "scale_off@layer=decoder.layers.1.mlp.linear_fc1,tensor=weight,k=3,iteration=2"});
  EXPECT_EQ(json.at("verdict").at("cause").at("kind"), "scale_too_large");
  EXPECT_TRUE(trained(1, {"--recipe", "none"}).at("verdict").is_null());
}

TEST_F(ReportCommand, NoDataAndNoDirectoryAreNotHealth) {
  std::filesystem::create_directory(folder_ / "empty");
  const ProgramResult empty = amaxscope({"report", "empty", "--text"});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.out, AllOf(HasSubstr("no data"), Not(HasSubstr("healthy"))));
  const ProgramResult missing = amaxscope({"report", "nosuch", "--text"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(lines_of(missing.err), ElementsAre(HasSubstr("nosuch: no directory")));
}

TEST_F(ReportCommand, APageThatCannotBeWrittenOrWouldSayNothingIsRefusedInOneLine) {
  std::filesystem::create_directory(folder_ / "empty");
  const ProgramResult empty = amaxscope({"report", "empty"});
  EXPECT_EQ(empty.status, 2);
  EXPECT_EQ(empty.out, "");
  EXPECT_THAT(lines_of(empty.err), ElementsAre(AllOf(HasSubstr("empty: no data"), HasSubstr("--text"))));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "empty" / "report.html"));
  const ProgramResult both = amaxscope({"report", "empty", "--text", "--html", "x.html"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("--html"));
}

}  // namespace
}  // namespace amaxscope::test

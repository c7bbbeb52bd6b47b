// diff and watch on runs of `amaxscope train`.
#include <thread>

#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CompareCommands : public TrainFixture {
 protected:
  void train(int ranks, const std::string& log_dir, const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> arguments =
        small({"--steps", "8", "--layers", "2", "--hidden", "64", "--seq", "32", "--preset", "diagnose",
               "--recipe", "mxfp8", "--log-dir", log_dir});
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    const ProgramResult result = ranks == 1 ? amaxscope(arguments) : amaxscope_job(ranks, arguments);
    EXPECT_EQ(result.status, 0) << result.err;
  }
};

TEST_F(CompareCommands, TheSameTrainingAtTwoSizesAndOneWithAFault) {
  train(1, "one");
  train(2, "two", {"--tp", "2", "--sequence-parallel"});
  const ProgramResult same = amaxscope({"diff", "one", "two"});
  EXPECT_EQ(same.status, 0) << same.out;
  EXPECT_THAT(same.out, AllOf(HasSubstr("same: no statistic differs"),
                              HasSubstr("size of tp: 1 in A, 2 in B"), HasSubstr("in A only: ")));
  EXPECT_EQ(amaxscope({"diff", "one", "one"}).status, 0);

  train(2, "fault",
        {"--tp", "2", "--sequence-parallel", "--inject",
         "scale_rounded_down@layer=decoder.layers.2.mlp.linear_fc1,tensor=activation,iteration=5"});
  const ProgramResult text = amaxscope({"diff", "two", "fault"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(
      text.out,
      AllOf(HasSubstr("they part at iteration 5: decoder.layers.2.mlp.linear_fc1 activation (forward)"),
            HasSubstr("option inject: ")));
  // Also against the run of another size.
  const nlohmann::json json = nlohmann::json::parse(amaxscope({"diff", "one", "fault", "--json"}).out);
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("outcome"), "differs");
  EXPECT_EQ(json.at("first").at(0).at("iteration"), 5);
  EXPECT_EQ(json.at("first").at(0).at("layer"), "decoder.layers.2.mlp.linear_fc1");
  EXPECT_EQ(json.at("first").at(0).at("tensor"), "activation");

  const ProgramResult report = amaxscope({"report", "fault", "--text", "--against", "two"});
  EXPECT_EQ(report.status, 1);
  EXPECT_THAT(report.out, HasSubstr("\nagainst       two: they part at iteration 5"));
  EXPECT_EQ(amaxscope({"report", "fault", "--against", "two"}).status, 1);
  EXPECT_THAT(read("fault/report.html"),
              HasSubstr(R"("sentence":"they part at iteration 5: decoder.layers.2.)"));

  for (const char* log : {"one", "two", "fault"}) {
    EXPECT_EQ(amaxscope({"check-records", log}).status, 0) << log;
  }
  const ProgramResult seen = amaxscope({"watch", "fault"});
  EXPECT_EQ(seen.status, 1);
  EXPECT_THAT(seen.out,
              AllOf(HasSubstr("iteration 7"), HasSubstr("the run was closed"), Not(HasSubstr("\x1b"))));
}

TEST_F(CompareCommands, APerturbedRunMakesTheTolerance) {
  train(1, "one");
  train(1, "perturbed", {"--perturb", "1"});
  train(1, "other", {"--perturb", "2"});
  train(1, "rate", {"--learning-rate", "0.006"});
  const auto against = [&](const char* run) {
    const ProgramResult result = amaxscope({"diff", "one", run, "--perturbed", "perturbed", "--json"});
    const nlohmann::json json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json.at("tolerance_from"), "perturbed runs");
    EXPECT_EQ(result.status, json.at("outcome") == "same" ? 0 : 1);
    return json.at("tensors_apart").get<double>() / json.at("tensors").get<double>();
  };
  // One run of a model as small as this one does not show all that rounding does.
  EXPECT_LT(against("other"), 0.3);
  EXPECT_GT(against("rate"), 0.7);
  EXPECT_EQ(against("perturbed"), 0) << "what it was measured on";
  EXPECT_THAT(amaxscope({"diff", "one", "rate"}).out,
              HasSubstr("option learning-rate: 0.003 in A, 0.006 in B"));
  std::filesystem::create_directories(folder_ / "empty");
  const ProgramResult wrong = amaxscope({"diff", "one", "other", "--perturbed", "empty"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("empty: has no value of the same tensor and iteration as one"));
}

TEST_F(CompareCommands, WrongUse) {
  EXPECT_EQ(amaxscope({"diff", "a"}).status, 2);
  EXPECT_EQ(amaxscope({"diff", "a", "b"}).status, 2);
  EXPECT_EQ(amaxscope({"watch", "nosuch"}).status, 2);
  std::filesystem::create_directories(folder_ / "empty");
  const ProgramResult nothing = amaxscope({"diff", "empty", "empty"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.out, HasSubstr("nothing to compare"));
  EXPECT_EQ(amaxscope({"watch", "empty", "--once"}).status, 2) << "no data is not healthy";
  EXPECT_EQ(amaxscope({"watch", "empty", "--interval", "0"}).status, 2);
}

// A job that goes on while it is watched, on what it takes for a terminal.
TEST_F(CompareCommands, WatchFollowsAJobToItsEnd) {
  write("watch.yaml", read("observe.yaml"));
  ProgramResult seen;
  std::filesystem::create_directories(folder_ / "log");
  std::thread watcher([&] {
    ProgramOptions options;
    options.environment = {{"AMAXSCOPE_TERMINAL", "1"}, {"NO_COLOR", "1"}};
    seen = amaxscope({"watch", "log", "--interval", "0.2"}, options);
  });
  const ProgramResult trained =
      amaxscope(small({"--steps", "60", "--config", "observe.yaml", "--log-dir", "log"}));
  watcher.join();
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(seen.out,
              AllOf(HasSubstr("\x1b[H\x1b[J"), HasSubstr("no step completed yet"), HasSubstr("iteration 59"),
                    HasSubstr("the run was closed"), Not(HasSubstr("\x1b[3"))));
}

}  // namespace
}  // namespace amaxscope::test

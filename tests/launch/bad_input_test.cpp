// Bad input: one clear error, status 2, all ranks gone within seconds, nothing that looks like a result.
#include <unistd.h>

#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class BadInput : public TrainFixture {
 protected:
  /// The lines of ours; mpirun adds a banner of its own when ranks leave with another status than 0.
  static std::vector<std::string> complaints(const ProgramResult& result,
                                             const std::string& source = "config.yaml:") {
    std::vector<std::string> ours;
    for (const std::string& line : lines_of(result.err)) {
      if (line.starts_with("amaxscope: ") || line.starts_with(source)) ours.push_back(line);
    }
    return ours;
  }

  void expect_refusal(const ProgramResult& result, const std::vector<std::string>& parts) const {
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_LT(result.seconds, 20.0);
    const std::vector<std::string> ours = complaints(result);
    EXPECT_EQ(ours.size(), 1U) << result.err;
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
    // The complaint comes before the launcher's noise, without a trace or a number of its own.
    EXPECT_TRUE(result.err.starts_with("amaxscope: ") || result.err.starts_with("config.yaml:"))
        << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("terminate called")));
    EXPECT_FALSE(exists("logs"));
    EXPECT_FALSE(exists("amaxscope_logs"));
  }

  void expect_refusal(const std::vector<std::string>& changes, const std::vector<std::string>& parts,
                      int ranks = 2) const {
    std::vector<std::string> arguments = {"--tp", std::to_string(ranks), "--log-dir", "logs"};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    expect_refusal(amaxscope_job(ranks, small(arguments)), parts);
  }

  /// A config with one mistake in it.
  void expect_config_refusal(const std::string& text, const std::vector<std::string>& parts) const {
    write("config.yaml", text);
    expect_refusal({"--config", "config.yaml"}, parts);
  }
};

std::string with_feature(const std::string& feature) {
  return "section:\n  enabled: True\n  layers:\n    layer_types: [linear_fc1]\n  transformer_engine:\n" +
         feature;
}

TEST_F(BadInput, ConfigThatDoesNotExist) { expect_refusal({"--config", "nosuch.yaml"}, {"nosuch.yaml"}); }

TEST_F(BadInput, ConfigThatIsADirectory) {
  std::filesystem::create_directory(folder_ / "folder");
  expect_refusal({"--config", "folder"}, {"folder", "directory"});
}

TEST_F(BadInput, ConfigThatCannotBeRead) {
  if (getuid() == 0) {
    // Root reads everything: a file whose every read fails instead.
    expect_refusal({"--config", "/proc/self/mem"}, {"/proc/self/mem"});
    return;
  }
  write("config.yaml", "");
  std::filesystem::permissions(folder_ / "config.yaml", std::filesystem::perms::none);
  expect_refusal({"--config", "config.yaml"}, {"config.yaml", "ermission"});
}

TEST_F(BadInput, ConfigThatIsNoYaml) { expect_config_refusal("a: [1,\nb: }\n", {"config.yaml:"}); }

TEST_F(BadInput, UnknownKey) {
  expect_config_refusal(with_feature("    LogTensorStats:\n      enabled: True\n      tensors: [weight]\n"
                                     "      stats: [mean]\n      frequency: 10\n"),
                        {"config.yaml:10:7: ", "frequency", "did you mean \"freq\""});
}

TEST_F(BadInput, WrongType) {
  expect_config_refusal(
      with_feature("    LogTensorStats:\n      enabled: \"False\"\n      tensors: [weight]\n"
                   "      stats: [mean]\n"),
      {"config.yaml:7:", "enabled"});
}

TEST_F(BadInput, UnknownFeature) {
  expect_config_refusal(with_feature("    FakeQuants:\n      enabled: True\n"),
                        {"config.yaml:6:5: ", "did you mean \"FakeQuant\""});
}

TEST_F(BadInput, UnknownStatistic) {
  expect_config_refusal(with_feature("    LogTensorStats:\n      enabled: True\n      tensors: [weight]\n"
                                     "      stats: [meen]\n"),
                        {"config.yaml:9:", "did you mean \"mean\""});
}

TEST_F(BadInput, BadRegularExpression) {
  expect_config_refusal(
      "section:\n  enabled: True\n  layers:\n    layer_name_regex_pattern: \"fc(1\"\n"
      "  transformer_engine:\n    DisableQuantizationLayer:\n      enabled: True\n",
      {"config.yaml:4:", "fc(1"});
}

TEST_F(BadInput, FeaturesThatConflictOnALayer) {
  write("config.yaml",
        "a:\n  enabled: True\n  layers: {layer_types: [fc1]}\n  transformer_engine:\n"
        "    PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [activation, weight]}\n"
        "b:\n  enabled: True\n  layers: {layer_types: [fc1]}\n  transformer_engine:\n"
        "    FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop], tensors: [activation, "
        "weight]}\n");
  const ProgramResult result =
      amaxscope_job(2, small({"--tp", "2", "--log-dir", "logs", "--config", "config.yaml"}));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(complaints(result).size(), 1U) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("PerTensorScaling"), HasSubstr("FakeQuant"), HasSubstr("linear_fc1")));
}

TEST_F(BadInput, SizesThatDoNotDivide) {
  expect_refusal({"--heads", "1", "--hidden", "32"}, {"--heads 1 is not divisible by --tp 2"});
  expect_refusal({"--tp", "2"}, {"number of ranks 3 is not divisible by --tp 2"}, 3);
}

TEST_F(BadInput, NoDevice) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there may be one";
  // With a library for CUDA beside the program, and without.
  expect_refusal({"--device", "cuda"}, {"--device cuda: ", "or train with --device cpu"});
}

TEST_F(BadInput, SizesThatBlocksDoNotDivide) {
  expect_refusal({"--recipe", "mxfp8", "--hidden", "48"}, {"--recipe mxfp8", "multiples of 32", "is 24"});
}

TEST_F(BadInput, UnknownOption) { expect_refusal({"--stepz", "3"}, {"did you mean \"--steps\""}); }

TEST_F(BadInput, DataThatIsMissingOrTooShort) {
  expect_refusal({"--data", "nosuch.txt"}, {"nosuch.txt"});
  write("short.txt", "tiny");
  write("data.txt", "");
  expect_refusal({"--data", "short.txt"}, {"data.txt"});
}

TEST_F(BadInput, InjectedFaultThatDoesNotExist) {
  expect_refusal({"--inject", "gremlin@layer=x"}, {"gremlin"});
  expect_refusal({"--inject", "nan@layer=nosuch"}, {"nosuch"});
}

TEST_F(BadInput, LogDirectoryOfAnotherRun) {
  std::filesystem::create_directory(folder_ / "old");
  write("old/run.json", "{}");
  write("config.yaml", "");
  expect_refusal({"--config", "observe.yaml", "--log-dir", "old"},
                 {"old", "holds the logs of a run already"});
}

TEST_F(BadInput, ARankWithAnotherConfigIsNamedWithBothDigests) {
  write("other.yaml", read("observe.yaml") + "# another byte\n");
  const ProgramResult result =
      amaxscope_jobs({{1, small({"--tp", "2", "--log-dir", "logs", "--config", "observe.yaml"})},
                      {1, small({"--tp", "2", "--log-dir", "logs", "--config", "other.yaml"})}});
  expect_refusal(result, {"different configs", "rank 0 has digest", "rank 1 has"});
}

TEST_F(BadInput, ARankWithOtherOptionsIsNamed) {
  const ProgramResult steps =
      amaxscope_jobs({{1, small({"--tp", "2"})}, {1, small({"--tp", "2", "--steps", "4"})}});
  expect_refusal(steps, {"rank 1: --steps is `4` here and `3` on rank 0"});
  const ProgramResult config =
      amaxscope_jobs({{1, small({"--tp", "2", "--config", "observe.yaml"})}, {1, small({"--tp", "2"})}});
  expect_refusal(config, {"rank 1: the use of --config is `no` here and `yes` on rank 0"});
}

TEST_F(BadInput, ARankWhoseDataIsMissingIsNamed) {
  const ProgramResult result = amaxscope_jobs({{1, small({})}, {1, small({"--data", "nosuch.txt"})}});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, StartsWith("amaxscope: rank 1: "));
}

TEST_F(BadInput, AnEmptyConfigTrainsWithAWarning) {
  write("empty.yaml", "");
  const ProgramResult result =
      amaxscope_job(2, small({"--tp", "2", "--config", "empty.yaml", "--json", "--log-dir", "logs"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("empty.yaml"));
  EXPECT_EQ(nlohmann::json::parse(result.out).at("collectives").at("debug").is_number(), true);
  EXPECT_FALSE(exists("logs"));
}

}  // namespace
}  // namespace amaxscope::test

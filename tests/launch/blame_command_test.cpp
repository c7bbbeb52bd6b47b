// `amaxscope blame` around a stand-in for a training: how it starts runs, reads what they leave, and goes on;
// and around a real one with a planted fault.
#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::HasSubstr;

/// Loss 2 when fc2 is in high precision (or everything is), else 3; a seed adds a little. Writes a line to
/// the file `started` for each start.
constexpr const char* kTraining = R"(#!/usr/bin/env bash
set -eu
config=$1 logs=$2 seed=$3
echo "$seed" >> started
[[ ! -e broken ]] || { echo "out of memory"; exit 3; }
loss=3.0
if grep -q 'DisableQuantization' "$config"; then
  if grep -q 'layer_types: \[all\]}' <(grep -B2 -A3 '^everything' "$config"); then loss=2.0; fi
  if grep -q '"b.fc2"' "$config" && ! grep -q 'gemms: \[\(fprop\|wgrad\)\]' "$config"; then loss=2.0; fi
fi
mkdir -p "$logs/metrics"
{
  echo '{"schema_version":1,"run_id":"r","rank":0}'
  for layer in a.fc1 b.fc2 c.fc1; do
    error=0.01; [[ $layer != b.fc2 ]] || error=0.02
    echo "{\"iteration\":0,\"layer\":\"$layer\",\"tensor\":\"output\",\"phase\":\"forward\",\"stats\":{\"relative_error\":$error}}"
  done
  echo '{"iteration":0,"scalars":{"loss":9.0}}'
  echo '{"iteration":0,"end_of_step":true}'
  echo "{\"iteration\":1,\"scalars\":{\"loss\":${loss}0$seed}}"
  echo '{"iteration":1,"end_of_step":true}'
} > "$logs/metrics/rank_0.jsonl"
)";

class BlameCommand : public CliTest {
 protected:
  BlameCommand() {
    write("train.sh", kTraining);
    std::filesystem::permissions(folder_ / "train.sh", std::filesystem::perms::owner_all);
  }
  ProgramResult blame(const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"blame", "--last", "1", "--work-dir", "w"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"--", "./train.sh", "{config}", "{log_dir}", "{seed}"});
    return amaxscope(arguments);
  }
  std::size_t started() const { return lines_of(read("started")).size(); }
};

TEST_F(BlameCommand, FindsTheGemmOfTheLayerThatIsToBlame) {
  const ProgramResult result = blame();
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("to blame (with less in high precision the damage stays): dgrad of b.fc2"));
  EXPECT_THAT(result.out, HasSubstr("DisableQuantizationGEMM: {enabled: True, gemms: [dgrad]}"));
  // Two seeds of two runs; b.fc2 has the largest error and is the first guess; fprop, dgrad; the other seed.
  EXPECT_EQ(started(), 4U + 1U + 2U + 1U) << result.err;
  EXPECT_THAT(read("w/run_000/config.yaml"), HasSubstr("CompareGemm"));
  EXPECT_THAT(read("w/run_001/config.yaml"), ::testing::Not(HasSubstr("CompareGemm")));
}

TEST_F(BlameCommand, GoesOnWhereItWasEnded) {
  EXPECT_EQ(blame({"--budget", "5"}).status, 1);
  EXPECT_EQ(started(), 5U);
  const ProgramResult result = blame({"--json"});
  EXPECT_EQ(started(), 8U) << "none of the five again";
  EXPECT_THAT(result.err, HasSubstr("going on with the 5 runs in w"));
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("outcome"), "found");
  EXPECT_EQ(json.at("suspects"), nlohmann::json::parse(R"([{"layer": "b.fc2", "gemms": ["dgrad"]}])"));
  EXPECT_DOUBLE_EQ(json.at("as_configured"), (3.001 + 3.002) / 2);
  const ProgramResult other = blame({"--score", "accuracy"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("is of another command or --score"));
}

TEST_F(BlameCommand, ARunThatFailsEndsTheSearchAndIsKept) {
  write("broken", "");
  const ProgramResult result = blame();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("w/run_000 ended with status 3; its output: w/run_000/output.txt"));
  EXPECT_THAT(read("w/run_000/output.txt"), HasSubstr("out of memory"));
  std::filesystem::remove(folder_ / "broken");
  EXPECT_EQ(blame().status, 1) << "mended, it goes on";
}

// A real training: one weight's scale is 2^12 too large, its codes are all the largest there is, and nothing
// is learned but how often which byte comes. The layer in high precision does not use the scale.
TEST_F(BlameCommand, FindsTheLayerThatDamagesARealTraining) {
  const char* const words[] = {"scale ", "amax ", "of a tensor ", "is its largest ", "magnitude, ", "and\n"};
  std::string text;
  for (unsigned i = 0, state = 1; i < 4000; ++i, state = state * 1664525U + 1013904223U)
    text += words[(state >> 16U) % std::size(words)];
  write("data.txt", text);
  const std::string layer = "decoder.layers.1.mlp.linear_fc2";
  std::vector<std::string> arguments = {
      "blame", "--work-dir", "real", "--json", "--", "env", "OPENBLAS_NUM_THREADS=1", AMAXSCOPE_PROGRAM};
  for (const char* word :
       {"train",  "--data",   "data.txt", "--recipe", "current",  "--steps",   "100",       "--learning-rate",
        "0.006",  "--layers", "2",        "--hidden", "64",       "--heads",   "4",         "--seq",
        "32",     "--batch",  "4",        "--config", "{config}", "--log-dir", "{log_dir}", "--seed",
        "{seed}", "--inject"}) {
    arguments.emplace_back(word);
  }
  arguments.push_back("scale_off@layer=" + layer + ",tensor=weight,k=12");
  const ProgramResult result = amaxscope(arguments);
  ASSERT_EQ(result.status, 1) << result.out << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("outcome"), "found") << result.out;
  ASSERT_EQ(json.at("suspects").size(), 1U) << result.out;
  EXPECT_EQ(json.at("suspects").at(0).at("layer"), layer);
  EXPECT_GT(json.at("as_configured").get<double>(), json.at("high_precision").get<double>() + 0.5);
  EXPECT_LT(json.at("with_suspects").get<double>(), json.at("as_configured").get<double>() - 0.3);
  EXPECT_LE(json.at("runs").size(), 12U);
}

TEST_F(BlameCommand, RefusesACommandThatIgnoresWhatItIsGiven) {
  const ProgramResult result = amaxscope({"blame", "--", "./train.sh", "{config}", "{log_dir}"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("does not mention {seed}"));
  const ProgramResult none = amaxscope({"blame", "--", "./nosuch", "{config}", "{log_dir}", "{seed}"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("./nosuch: cannot be started: No such file or directory"));
}

}  // namespace
}  // namespace amaxscope::test

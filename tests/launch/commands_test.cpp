// The commands that need no job, as a user runs them.
#include <fstream>

#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kConfig = R"(stats:
  enabled: True
  layers:
    layer_types: [fc1]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [mean]
      freq: 2
    DisableQuantizationGEMM:
      enabled: True
      gemms: [wgrad]
)";

using Commands = CliTest;

TEST_F(Commands, HelpNamesEveryCommand) {
  const ProgramResult help = amaxscope({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command : {"train", "check", "explain", "doctor", "analyze", "quantize", "replay",
                              "report", "sense", "blame", "watch", "presets", "diff", "check-records"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("  ") + command)) << command;
  }
}

TEST_F(Commands, EveryCommandHasHelp) {
  for (const char* command : {"train", "check", "explain", "doctor", "analyze", "quantize", "replay",
                              "report", "sense", "blame", "watch", "presets", "diff", "check-records"}) {
    const ProgramResult help = amaxscope({command, "--help"});
    EXPECT_EQ(help.status, 0) << command << help.err;
    EXPECT_THAT(help.out, HasSubstr("Usage: amaxscope " + std::string(command))) << command;
  }
}

TEST_F(Commands, APresetIsAConfigToStartFrom) {
  EXPECT_THAT(amaxscope({"presets"}).out,
              AllOf(HasSubstr("watch"), HasSubstr("nan"), HasSubstr("gap"), HasSubstr("full")));
  const ProgramResult preset = amaxscope({"presets", "nan"});
  EXPECT_EQ(preset.status, 0);
  EXPECT_THAT(preset.out, HasSubstr("NonFiniteGuard:"));
  const std::filesystem::path file = folder_ / "preset.yaml";
  std::ofstream(file) << preset.out;
  EXPECT_EQ(amaxscope({"check", file.string()}).status, 0);
  const ProgramResult unknown = amaxscope({"presets", "nam"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("there is no preset \"nam\"; there are watch, nan, diagnose, gap, full"));
}

TEST_F(Commands, WrongUseIsOneLineAndStatusTwo) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{}, "subcommand"},
      {{"chekc"}, "unknown command `chekc`; did you mean \"check\"?"},
      {{"train", "--stepz", "3"}, "unknown option --stepz of train; did you mean \"--steps\"?"},
      {{"train", "--steps", "many"}, "--steps"},
      {{"train", "--recipe", "delaid"}, "--recipe delaid: unknown; did you mean \"delayed\"?"},
      {{"check"}, "YAML is required"},
      {{"check", "x.yaml", "--iterations", "9:3"}, "--iterations 9:3"},
      {{"check", "x.yaml", "--recipe", "fp8"}, "--recipe fp8"},
      {{"check", "x.yaml", "--layers", "nosuch.txt"},
       "nosuch.txt: cannot be read: No such file or directory"},
      {{"explain", "LogTensorStat"}, "did you mean \"LogTensorStats\"?"}};
  for (const auto& [arguments, expected] : cases) {
    const ProgramResult result = amaxscope(arguments);
    EXPECT_EQ(result.status, 2) << expected;
    EXPECT_EQ(result.out, "") << expected;
    EXPECT_THAT(lines_of(result.err), ElementsAre(AllOf(StartsWith("amaxscope: "), HasSubstr(expected))));
  }
}

TEST_F(Commands, ExplainListsFeaturesAndTheirKeys) {
  const ProgramResult all = amaxscope({"explain"});
  EXPECT_EQ(all.status, 0);
  for (const char* feature :
       {"CompareGemm", "DisableQuantizationGEMM", "DisableQuantizationLayer", "PerTensorScaling", "FakeQuant",
        "LogTensorStats", "LogFp8TensorStats", "LogNvfp4TensorStats", "RecipeOverride"}) {
    EXPECT_THAT(all.out, HasSubstr(feature));
  }
  const ProgramResult one = amaxscope({"explain", "FakeQuant"});
  EXPECT_EQ(one.status, 0);
  EXPECT_THAT(one.out, AllOf(HasSubstr("quant_format"), HasSubstr("FP8E4M3"), HasSubstr("amax_scope"),
                             HasSubstr("start_end_list"), HasSubstr("gemms and tensors")));
  EXPECT_THAT(amaxscope({"explain", "DisableFP8GEMM"}).out, HasSubstr("DisableQuantizationGEMM"));
}

TEST_F(Commands, CheckWithoutLayersValidates) {
  write("config.yaml", kConfig);
  const ProgramResult result = amaxscope({"check", "config.yaml"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("config.yaml: valid"), HasSubstr("section stats"),
                                HasSubstr("LogTensorStats, DisableQuantizationGEMM")));
}

TEST_F(Commands, CheckRecordsSaysWhetherWhatARunWroteIsWhole) {
  EXPECT_EQ(amaxscope({"check-records", "nosuch"}).status, 2);
  std::filesystem::create_directories(folder_ / "log" / "metrics");
  EXPECT_EQ(amaxscope({"check-records", "log"}).status, 1) << "no data is not healthy";
  write(
      "log/run.json",
      R"({"schema_version":1,"runs":[{"run_id":"r","state":"closed","world_size":1,"first_iteration":0,"last_iteration":3}]})");
  const std::string step =
      R"({"iteration":2,"layer":"a","tensor":"weight","phase":"forward","stats":{"max":1},"flags":{},)"
      R"("recipe":"none","group":[0],"layout":"replicated"})"
      "\n";
  const std::string opening = R"({"schema_version":1,"run_id":"r","rank":0})"
                              "\n";
  write("log/metrics/rank_0.jsonl", opening + step +
                                        R"({"iteration":2,"end_of_step":true,"records":1})"
                                        "\n"
                                        R"({"iteration":3,"end_of_run":true})"
                                        "\n");
  const ProgramResult whole = amaxscope({"check-records", "log"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out,
              AllOf(HasSubstr("run r: closed, 1 rank, from iteration 0 to 3"),
                    HasSubstr("1 records of 1 layers and 0 findings, in 1 steps"), HasSubstr("log: whole")));
  write("log/metrics/rank_0.jsonl", opening + step);
  const ProgramResult cut = amaxscope({"check-records", "log"});
  EXPECT_EQ(cut.status, 1);
  EXPECT_THAT(cut.err, HasSubstr("log/metrics/rank_0.jsonl:2: 1 lines of iteration 2 are not followed by"));
  EXPECT_THAT(cut.out, AllOf(HasSubstr("log: 2 problems"), Not(HasSubstr("whole"))));
  EXPECT_EQ(amaxscope({"check", "--metrics", "log"}).err, cut.err) << "the same under its older name";
  const nlohmann::json json = nlohmann::json::parse(amaxscope({"check-records", "log", "--json"}).out);
  EXPECT_EQ(json.at("whole"), false);
  EXPECT_EQ(json.at("problems").size(), 2U) << "that nothing was completed is one, too";
}

TEST_F(Commands, CheckShowsThePlanAsATable) {
  write("config.yaml", kConfig);
  const ProgramResult result =
      amaxscope({"check", "config.yaml", "--layer", "a.fc1", "--layer", "a.fc2", "--iterations", "0:3"});
  EXPECT_EQ(result.status, 0) << result.err;
  // Two operands of wgrad in high precision throughout; inspection alternates.
  EXPECT_THAT(result.out, ::testing::ContainsRegex("a\\.fc1 +gradient +wgrad +0-3 +High Precision +no "));
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("a\\.fc1 +activation +fprop +0 +Quantize +yes +LogTensorStats"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("a\\.fc1 +activation +fprop +1 +Quantize +no"));
  EXPECT_THAT(result.out, HasSubstr("no section matches: a.fc2"));
  EXPECT_THAT(result.out, HasSubstr("plans may change again at iteration 4"));
}

TEST_F(Commands, CheckAsJsonHasOneRowForEachTensorGemmAndIteration) {
  write("config.yaml", kConfig);
  const ProgramResult result =
      amaxscope({"check", "config.yaml", "--layers", "-", "--iterations", "0:1", "--json"},
                {.standard_input = "a.fc1\n\n  b.fc1\r\n"});
  EXPECT_EQ(result.status, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.at("rows").size(), 2U * 9U * 2U);
  const nlohmann::json expected = {{"layer", "b.fc1"},
                                   {"tensor", "activation"},
                                   {"gemm", "wgrad"},
                                   {"iteration", 0},
                                   {"plan", "High Precision"},
                                   {"inspect", true},
                                   {"features", {"LogTensorStats", "DisableQuantizationGEMM"}}};
  EXPECT_THAT(json.at("rows"), Contains(expected));
}

TEST_F(Commands, CheckRefusesASectionThatMatchesNothing) {
  write("config.yaml", kConfig);
  write("layers.txt", "a.fc2\na.linear_fcl\n");
  const ProgramResult result = amaxscope({"check", "config.yaml", "--layers", "layers.txt"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(StartsWith("config.yaml:1:1: "), HasSubstr("section stats matches none"),
                                HasSubstr("a.fc2")));
}

TEST_F(Commands, CheckReportsEveryMistakeWithItsPlace) {
  write("config.yaml", R"(stats:
  enabled: "False"
  layers:
    layer_name_regex_pattern: "decoder.(fc1"
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [meen]
      frequency: 10
    LogTensorStatz:
      enabled: True
)");
  const ProgramResult result = amaxscope({"check", "config.yaml"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("config.yaml:2:"), HasSubstr("config.yaml:4:"), HasSubstr("config.yaml:9:"),
                    HasSubstr("config.yaml:10:"), HasSubstr("config.yaml:11:")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("did you mean \"mean\""), HasSubstr("did you mean \"freq\""),
                                HasSubstr("did you mean \"LogTensorStats\"")));
  EXPECT_THAT(result.err, Not(HasSubstr("amaxscope: ")));
}

TEST_F(Commands, CheckRefusesWhatIsNoConfigFile) {
  EXPECT_THAT(amaxscope({"check", "nosuch.yaml"}).err,
              AllOf(StartsWith("amaxscope: "), HasSubstr("nosuch.yaml")));
  EXPECT_EQ(amaxscope({"check", "nosuch.yaml"}).status, 2);
  EXPECT_EQ(amaxscope({"check", "."}).status, 2);
  write("tabs.yaml", "a: [1,\nb: }\n");
  const ProgramResult invalid = amaxscope({"check", "tabs.yaml"});
  EXPECT_EQ(invalid.status, 2);
  EXPECT_THAT(invalid.err, StartsWith("tabs.yaml:"));
}

TEST_F(Commands, AnEmptyConfigIsValidAndWarns) {
  write("empty.yaml", "");
  const ProgramResult result = amaxscope({"check", "empty.yaml"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("empty.yaml"));
}

TEST_F(Commands, ExamplesOfTheProjectAreValidForItsOwnModel) {
  std::string layers;
  for (const char* number : {"1", "2"}) {
    for (const char* name :
         {"self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2"}) {
      layers += std::string("decoder.layers.") + number + "." + name + "\n";
    }
  }
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(AMAXSCOPE_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++examples;
    const ProgramResult result = amaxscope({"check", entry.path().string(), "--layers", "-", "--json"},
                                           {.standard_input = layers + "output_layer\n"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
  }
  EXPECT_GE(examples, 3);
}

TEST_F(Commands, DoctorAloneReportsTheMachine) {
  const ProgramResult result = amaxscope({"doctor"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Open MPI"), HasSubstr("OpenBLAS"), HasSubstr("CUDA"),
                                HasSubstr("NCCL"), HasSubstr("/dev/shm"), HasSubstr("local rank")));
}

TEST_F(Commands, ASingletonUnderALauncherIsRefused) {
  write("data.txt", "text");
  const ProgramOptions slurm{.environment = {{"SLURM_NTASKS", "4"}}};
  const ProgramResult train = amaxscope({"train", "--data", "data.txt"}, slurm);
  EXPECT_EQ(train.status, 2);
  EXPECT_THAT(lines_of(train.err), ElementsAre(AllOf(StartsWith("amaxscope: "), HasSubstr("singleton"),
                                                     HasSubstr("mpirun -n 4 amaxscope train"))));
  const ProgramResult doctor = amaxscope({"doctor"}, slurm);
  EXPECT_EQ(doctor.status, 1);
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("problem: "), HasSubstr("singleton")));
}

TEST_F(Commands, OutputThatCannotBeWrittenIsAnError) {
  const ProgramResult result = run_program({"sh", "-c", "\"$0\" explain > /dev/full", AMAXSCOPE_PROGRAM});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("standard output cannot be written"));
}

}  // namespace
}  // namespace amaxscope::test

// `amaxscope doctor` as the ranks of a job.
#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Doctor : public CliTest {
 protected:
  /// Each rank runs this in a shell, with the program's path as $0.
  ProgramResult in_shell(int ranks, const std::string& script, const std::string& libraries = {}) const {
    return run_program({AMAXSCOPE_SOURCE_DIR "/launch/mpirun_local", "--timeout", "60", "-n",
                        std::to_string(ranks), "sh", "-c", script, AMAXSCOPE_PROGRAM},
                       {.environment = {{"LD_LIBRARY_PATH", libraries}}, .directory = folder_.string()});
  }
  static constexpr const char* kDevices = "-0000-0000-0000-0000000000";
};

TEST_F(Doctor, ShowsWhereEachRankRuns) {
  const ProgramResult result = amaxscope_job(2, {"doctor"}, {.environment = {{"OMP_NUM_THREADS", "3"}}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 ranks on 1 host"), ContainsRegex("\n0 +[^ ]+ +0 of 2 +"),
                                ContainsRegex("\n1 +[^ ]+ +1 of 2 +"), HasSubstr("OMP_NUM_THREADS=3"),
                                HasSubstr("OMPI_MCA_btl=vader,self"), Not(HasSubstr("what differs"))));
}

TEST_F(Doctor, SaysWhatATrainingCanRunOn) {
  const std::filesystem::path module =
      std::filesystem::path(AMAXSCOPE_PROGRAM).parent_path() / "libamaxscope_train_cuda.so";
  const ProgramResult result = amaxscope({"doctor"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex(std::filesystem::exists(module)
                                            ? "\ntrain on +cpu, cuda \\(/.*libamaxscope_train_cuda.so\\)\n"
                                            : "\ntrain on +cpu \\(no library for CUDA"));
}

TEST_F(Doctor, NamesTheRankWithoutAVariable) {
  const ProgramResult result =
      in_shell(4, "[ $OMPI_COMM_WORLD_RANK = 2 ] || export NCCL_DEBUG=INFO; exec \"$0\" doctor");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, AllOf(ContainsRegex("\nNCCL_DEBUG +ranks 0, 1, 3 +INFO\n +rank 2 +not set\n"),
                                HasSubstr("problem: the ranks differ in NCCL_DEBUG;")));
}

TEST_F(Doctor, NamesTheRankWithAnotherConfig) {
  write("one.yaml", "a: 1\n");
  write("two.yaml", "a: 2\n");
  const ProgramResult result = amaxscope_jobs(
      {{1, {"doctor", "--config", "one.yaml", "--json"}}, {1, {"doctor", "--config", "two.yaml"}}});
  EXPECT_EQ(result.status, 1) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json.at("differences").size(), 1U);
  EXPECT_EQ(json.at("differences").at(0).at("what"), "config");
  const std::string first = json.at("ranks").at(0).at("config_digest");
  EXPECT_NE(first, json.at("ranks").at(1).at("config_digest"));
  EXPECT_EQ(json.at("differences").at(0).at("values").at(0).at("value"), first);
  EXPECT_EQ(json.at("well"), false);
}

TEST_F(Doctor, AConfigThatARankCannotReadEndsTheJob) {
  write("one.yaml", "a: 1\n");
  const ProgramResult result =
      amaxscope_jobs({{1, {"doctor", "--config", "one.yaml"}}, {1, {"doctor", "--config", "nosuch.yaml"}}});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("amaxscope: rank 1: "), HasSubstr("nosuch.yaml")));
  EXPECT_EQ(result.out, "");
}

TEST_F(Doctor, RanksThatSeeTheirOwnDeviceOnlyHaveOneEach) {
  const ProgramResult result =
      in_shell(2,
               "n=$OMPI_COMM_WORLD_RANK; [ $n = 0 ] && STAND_IN_DEVICES=a || STAND_IN_DEVICES=b;"
               "export STAND_IN_DEVICES; exec \"$0\" doctor",
               AMAXSCOPE_STAND_IN_DRIVER);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("CUDA 13.1, 1 device: Stand-in 9000"),
                                HasSubstr("cuda:0 GPU-ab000000" + std::string(kDevices) + "61 "),
                                HasSubstr("cuda:0 GPU-ab000000" + std::string(kDevices) + "62 "),
                                Not(HasSubstr("no job on devices"))));
}

TEST_F(Doctor, RanksThatShareADeviceAreNamed) {
  const auto doctor = [&](const std::string& devices, const std::string& option) {
    return in_shell(2, "STAND_IN_DEVICES=" + devices + " exec \"$0\" doctor " + option,
                    AMAXSCOPE_STAND_IN_DRIVER);
  };
  EXPECT_THAT(doctor("a", "").out,
              AllOf(HasSubstr("ranks 0, 1 on host "), HasSubstr(" all use device GPU-ab0000")));
  EXPECT_THAT(doctor("a", "--share-devices").out, Not(HasSubstr("all use device")));
  EXPECT_THAT(doctor("ab", "").out, AllOf(HasSubstr("cuda:1 GPU-ab"), Not(HasSubstr("all use device"))));
}

TEST_F(Doctor, ALocalRankThatTheLauncherNumbersOtherwiseIsNoted) {
  const ProgramResult result =
      in_shell(2, "[ $OMPI_COMM_WORLD_RANK = 0 ] || export OMPI_COMM_WORLD_LOCAL_RANK=5; exec \"$0\" doctor");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("note: rank 1: OMPI_COMM_WORLD_LOCAL_RANK=5, but MPI finds local rank 1"));
}

TEST_F(Doctor, EveryCommandThatRunsInAJobRefusesASingleton) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"train"}, "train"}, {{"replay", "dump", "--config", "x.yaml"}, "replay"}};
  for (const char* variable : {"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"}) {
    for (const auto& [arguments, name] : cases) {
      const ProgramResult result = amaxscope(arguments, {.environment = {{variable, "4"}}});
      EXPECT_EQ(result.status, 2) << variable << name;
      EXPECT_THAT(result.err, AllOf(HasSubstr("singleton"), HasSubstr(std::string(variable) + "=4"),
                                    HasSubstr("mpirun -n 4 amaxscope " + name)));
    }
  }
}

}  // namespace
}  // namespace amaxscope::test

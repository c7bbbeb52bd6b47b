// launch/mpirun, mpirun_local and srun: the line they make, with stand-ins for the launchers that show what
// they got.
#include <unistd.h>

#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A launcher that prints each of its words in a line of its own, then the settings, and ends with status 5.
constexpr const char* kShow =
    "for word in \"$@\"; do printf '<%s>\\n' \"$word\"; done\n"
    "env | grep -E '^(OMPI|AMAXSCOPE|FOO)' | sort\nexit 5\n";

class JobScripts : public CliTest {
 protected:
  JobScripts() {
    stand_in("mpirun", kShow);
    stand_in("srun", kShow);
    stand_in("id", "echo 1000");
  }
  void stand_in(const std::string& name, const std::string& script) const {
    std::filesystem::create_directories(folder_ / "bin");
    write("bin/" + name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder_ / "bin" / name, std::filesystem::perms::owner_all);
  }
  /// What a user's shell has, without what whoever runs the tests has set: the scripts would pass it on.
  [[nodiscard]] ProgramOptions shell(std::map<std::string, std::string> environment = {}) const {
    environment.emplace("PATH", (folder_ / "bin").string() + ":" + std::getenv("PATH"));
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      const std::string name(text.substr(0, text.find('=')));
      for (const char* prefix : {"AMAXSCOPE_", "CUDA_", "NCCL_", "OMPI_", "OMP_", "OPENBLAS_", "UCX_"}) {
        if (name.starts_with(prefix)) environment.emplace(name, "");
      }
    }
    return {.environment = environment, .directory = folder_.string()};
  }
  ProgramResult start(const std::string& script, const std::vector<std::string>& arguments,
                      const std::map<std::string, std::string>& environment = {}) const {
    std::vector<std::string> command = {AMAXSCOPE_SOURCE_DIR "/launch/" + script};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, shell(environment));
  }
};

TEST_F(JobScripts, WordsArriveAsTheyAreAndThePrintedLineDoesTheSame) {
  const std::vector<std::string> words = {"program", "two words", "it's", "",  "*",
                                          "$HOME",   "a\nb",      "\\",   "-x"};
  for (const char* script : {"mpirun", "srun"}) {
    std::vector<std::string> arguments = {"-n", "2", "--env", "FOO=b c"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ProgramResult direct = start(script, arguments);
    EXPECT_EQ(direct.status, 5);
    EXPECT_THAT(direct.out,
                HasSubstr("<program>\n<two words>\n<it's>\n<>\n<*>\n<$HOME>\n<a\nb>\n<\\>\n<-x>\n"));
    ASSERT_EQ(lines_of(direct.err).size(), 1U) << direct.err;
    const ProgramResult pasted = run_program({"bash", "-c", direct.err}, shell());
    EXPECT_EQ(pasted.status, 5);
    EXPECT_EQ(pasted.out, direct.out);
    arguments.insert(arguments.begin(), "--dry-run");
    const ProgramResult dry = start(script, arguments);
    EXPECT_EQ(dry.status, 0);
    EXPECT_EQ(dry.out, direct.err);
    EXPECT_EQ(dry.err, "");
  }
}

TEST_F(JobScripts, RootIsAllowedOnlyWhenTheUserIsRootAndItIsSaid) {
  const ProgramResult user = start("mpirun", {"-n", "2", "program"});
  EXPECT_THAT(user.out + user.err, Not(HasSubstr("RUN_AS_ROOT")));
  stand_in("id", "echo 0");
  const ProgramResult root = start("mpirun", {"-n", "2", "program"});
  EXPECT_THAT(root.out, AllOf(HasSubstr("OMPI_ALLOW_RUN_AS_ROOT=1\n"),
                              HasSubstr("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n")));
  EXPECT_THAT(root.err, StartsWith("mpirun: uid is 0: "));
  // Who has said so himself need not be told.
  const ProgramResult told = start(
      "mpirun", {"program"}, {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  EXPECT_THAT(told.err, Not(HasSubstr("uid is 0")));
  EXPECT_EQ(start("mpirun_local", {"-n", "2", "program"}).err, "");
}

TEST_F(JobScripts, OtherHostsGetWhatRanksNeed) {
  const ProgramResult result = start(
      "mpirun",
      {"-n", "4", "--hosts", "a:2,b:2", "--interface=eth1", "--env", "FOO", "--env", "BAR=1 2", "program"},
      {{"NCCL_DEBUG", "INFO"},
       {"AMAXSCOPE_THREADS", "2"},
       {"LD_LIBRARY_PATH", "/opt/lib"},
       {"FOO", "x"},
       {"SECRET", "y"}});
  const std::vector<std::string> lines = lines_of(result.out);
  const std::string text = result.out;
  for (const char* name : {"AMAXSCOPE_THREADS", "NCCL_DEBUG", "LD_LIBRARY_PATH", "PATH", "FOO", "BAR=1 2"}) {
    EXPECT_THAT(text, HasSubstr(std::string("<-x>\n<") + name + ">\n")) << name;
  }
  EXPECT_THAT(text, AllOf(Not(HasSubstr("SECRET")), HasSubstr("<--host>\n<a:2,b:2>\n"),
                          HasSubstr("<--bind-to>\n<none>\n"), HasSubstr("<-n>\n<4>\n<program>\n")));
  EXPECT_THAT(lines, Contains("OMPI_MCA_btl_tcp_if_include=eth1"));
  EXPECT_THAT(lines, Contains("OMPI_MCA_oob_tcp_if_include=eth1"));
  EXPECT_THAT(lines, Contains("OMPI_MCA_oob_tcp_keepalive_time=20"));
  EXPECT_THAT(text, Not(HasSubstr("--oversubscribe")));
}

TEST_F(JobScripts, WhatTheUserSetStays) {
  EXPECT_THAT(start("mpirun", {"program"}).out, HasSubstr("OMPI_MCA_mpi_yield_when_idle=1\n"));
  for (const char* script : {"mpirun", "mpirun_local", "srun"}) {
    EXPECT_THAT(start(script, {"program"}, {{"OMPI_MCA_mpi_yield_when_idle", "0"}}).out,
                HasSubstr("OMPI_MCA_mpi_yield_when_idle=0\n"))
        << script;
  }
  EXPECT_THAT(start("mpirun", {"--bind-to", "core", "program"}).out, HasSubstr("<--bind-to>\n<core>\n"));
}

TEST_F(JobScripts, TheLocalOneCrowdsOneMachineAndTakesPartsAndOptionsOfMpirun) {
  const ProgramResult result =
      start("mpirun_local", {"--timeout", "7", "-n", "3", "--tag-output", "one", ":", "-n", "1", "two"},
            {{"NCCL_DEBUG", "INFO"}});
  EXPECT_THAT(result.out,
              HasSubstr("<--oversubscribe>\n<-n>\n<3>\n<--tag-output>\n<one>\n<:>\n<-n>\n<1>\n<two>\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("<--timeout>\n<7>\n"), Not(HasSubstr("<-x>")),
                                HasSubstr("OMPI_MCA_btl_tcp_if_include=lo\n")));
}

TEST_F(JobScripts, SrunEndsTheJobWithItsRankAndPassesTheEnvironment) {
  const ProgramResult result = start(
      "srun", {"-n", "8", "-N", "2", "--timeout", "90", "--env", "FOO=b", "--gpus-per-task=1", "program"});
  EXPECT_THAT(lines_of(result.out),
              ElementsAre("<--mpi=pmix>", "<--kill-on-bad-exit=1>", "<--export=ALL>", "<--time=3>", "<-N>",
                          "<2>", "<-n>", "<8>", "<--gpus-per-task=1>", "<program>", "FOO=b",
                          "OMPI_MCA_mpi_yield_when_idle=1"));
  EXPECT_THAT(result.err, HasSubstr("timeout --foreground --kill-after=30 90 srun "));
  EXPECT_THAT(start("srun", {"--mpi", "pmix_v4", "program"}).out, StartsWith("<--mpi=pmix_v4>\n"));
}

TEST_F(JobScripts, WrongUseIsOneLineAndStatusTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"mpirun"}, "mpirun: no program to run"},
      {{"mpirun", "-n"}, "mpirun: -n needs a value"},
      {{"mpirun", "-n", "two", "program"}, "mpirun: -n two: not a whole number of at least 1"},
      {{"mpirun", "--timeout=0", "program"}, "mpirun: --timeout 0: not a whole number of at least 1"},
      {{"mpirun", "--hosts", "a", "--hostfile", "bin/id", "program"}, "mpirun: --hosts and --hostfile"},
      {{"mpirun", "--hostfile", "nosuch", "program"}, "mpirun: --hostfile nosuch: cannot be read"},
      {{"mpirun", "--local", "--hosts", "a", "program"}, "mpirun: --local means this machine"},
      {{"mpirun", "--env", "NO_SUCH_NAME", "program"}, "mpirun: --env NO_SUCH_NAME: is not set here"},
      {{"mpirun", "--env", "a-b", "program"}, "mpirun: --env a-b: neither NAME nor NAME=VALUE"},
      {{"srun", "-N", "-1", "program"}, "srun: -N -1: not a whole number of at least 1"}};
  for (const auto& [words, expected] : cases) {
    const ProgramResult result = start(words[0], {words.begin() + 1, words.end()});
    EXPECT_EQ(result.status, 2) << expected;
    EXPECT_EQ(result.out, "") << expected;
    EXPECT_THAT(lines_of(result.err), ElementsAre(StartsWith(expected)));
  }
}

TEST_F(JobScripts, ALauncherThatIsMissingOrThisScriptItselfIsNoLauncher) {
  std::filesystem::remove(folder_ / "bin/srun");
  std::filesystem::create_symlink(AMAXSCOPE_SOURCE_DIR "/launch/srun", folder_ / "bin/srun");
  const ProgramResult result = start("srun", {"program"}, {{"PATH", (folder_ / "bin").string() + ":/bin"}});
  EXPECT_EQ(result.status, 2) << result.out;
  EXPECT_THAT(lines_of(result.err), ElementsAre(StartsWith("srun: no srun on PATH")));
}

TEST_F(JobScripts, AJobOfTheRealMpirunIsBoundedAndItsStatusComesThrough) {
  std::filesystem::remove(folder_ / "bin/mpirun");
  std::filesystem::remove(folder_ / "bin/id");
  EXPECT_EQ(start("mpirun", {"--local", "-n", "2", "sh", "-c", "exit 7"}).status, 7);
  const ProgramResult bounded = start("mpirun", {"--local", "--timeout", "1", "-n", "2", "sleep", "50"});
  EXPECT_EQ(bounded.status, 110) << bounded.err;
  EXPECT_LT(bounded.seconds, 20.0);
}

}  // namespace
}  // namespace amaxscope::test

// The scripts, with stand-ins for the programs that would change this machine.
#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Scripts : public CliTest {
 protected:
  /// A program of this name that is found first.
  void stand_in(const std::string& name, const std::string& script) const {
    std::filesystem::create_directories(folder_ / "bin");
    write("bin/" + name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder_ / "bin" / name, std::filesystem::perms::owner_all);
  }
  ProgramResult install_deps(const std::vector<std::string>& arguments = {}) const {
    std::vector<std::string> command = {AMAXSCOPE_SOURCE_DIR "/launch/install_deps"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command,
                       {.environment = {{"PATH", (folder_ / "bin").string() + ":" + std::getenv("PATH")}},
                        .directory = folder_.string()});
  }
};

TEST_F(Scripts, InstallDepsDoesNothingWhenAllIsThere) {
  stand_in("dpkg-query", "echo installed");
  stand_in("apt-get", "touch called; exit 1");
  const ProgramResult result = install_deps();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("packages are installed"));
  EXPECT_FALSE(exists("called"));
}

TEST_F(Scripts, InstallDepsInstallsWhatIsMissingOnly) {
  stand_in("dpkg-query",
           "case \"$*\" in *libfmt-dev*|*ninja-build*) echo not-installed;; *) echo installed;; esac");
  stand_in("apt-get", "echo \"$*\" >> calls");
  stand_in("sudo", "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"");
  const ProgramResult result = install_deps();
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<std::string> calls = lines_of(read("calls"));
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_THAT(calls[0], HasSubstr("update"));
  EXPECT_THAT(calls[1], AllOf(HasSubstr("install --yes"), HasSubstr("ninja-build libfmt-dev"),
                              Not(HasSubstr("cmake"))));
}

TEST_F(Scripts, InstallDepsGetsABrowserOnRequestAndGoesOnWithoutOne) {
  stand_in("dpkg-query", "echo installed");
  stand_in("apt-get", "echo \"$*\" >> calls; case \"$*\" in *install*) exit 100;; esac");
  stand_in("sudo", "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"");
  const bool here = run_program({"sh", "-c",
                                 "command -v chromium-headless-shell || command -v chromium || command -v "
                                 "chromium-browser || command -v google-chrome"})
                        .status == 0;
  const ProgramResult result = install_deps({"--browser"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(exists("calls"), !here);
  if (here) return;
  EXPECT_THAT(lines_of(read("calls")).back(), HasSubstr("chromium-headless-shell"));
  EXPECT_THAT(result.out, HasSubstr("will be skipped"));
}

TEST_F(Scripts, InstallDepsGetsWhatTestsOfPythonNeedOnRequestAndGoesOnWithoutIt) {
  stand_in("dpkg-query", "echo installed");
  stand_in("apt-get", "echo \"$*\" >> calls; case \"$*\" in *install*) exit 100;; esac");
  stand_in("sudo", "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"");
  stand_in("python3", "echo \"$*\" >> started; [ \"$1\" != -c ]");
  const bool has_doxygen = run_program({"sh", "-c", "command -v doxygen"}).status == 0;
  const ProgramResult result = install_deps({"--python-tests"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(read("calls"), HasSubstr("install --yes --no-install-recommends python3-venv"));
  EXPECT_EQ(result.out.find("docs.doxygen will be skipped") == std::string::npos, has_doxygen);
  EXPECT_THAT(lines_of(read("started")).back(), ::testing::EndsWith("launch/python_for_tests"));
}

TEST_F(Scripts, InstallDepsSaysWhatFailed) {
  stand_in("dpkg-query", "exit 1");
  stand_in("apt-get", "exit 100");
  stand_in("sudo", "while [ \"${1#-}\" != \"$1\" ]; do shift; done; exec \"$@\"");
  const ProgramResult result = install_deps();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("apt-get update failed"));
  EXPECT_THAT(install_deps({"--dry-run"}).out, HasSubstr("missing: g++ cmake"));
}

TEST_F(Scripts, EachIsSoundShell) {
  const bool has_shellcheck = run_program({"sh", "-c", "command -v shellcheck"}).status == 0;
  int scripts = 0;
  for (const char* place : {".ci", "launch", "tests"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(AMAXSCOPE_SOURCE_DIR) / place)) {
      if (!entry.is_regular_file()) continue;
      std::string first_line;
      std::getline(std::ifstream(entry.path()) >> std::ws, first_line);
      if (first_line != "#!/usr/bin/env bash" && entry.path().extension() != ".bash") continue;
      ++scripts;
      const std::string script = entry.path().string();
      const ProgramResult result = has_shellcheck
                                       ? run_program({"shellcheck", "--external-sources", "--source-path",
                                                      AMAXSCOPE_SOURCE_DIR, script})
                                       : run_program({"bash", "-n", script});
      EXPECT_EQ(result.status, 0) << script << "\n" << result.out << result.err;
    }
  }
  EXPECT_GE(scripts, 12);
}

TEST_F(Scripts, EachExplainsItself) {
  for (const char* script : {"install_deps", "quickstart", "recipe_table", "docs", "page_picture", "test",
                             "package_tarball", "mpirun", "mpirun_local", "python_for_tests", "srun"}) {
    const ProgramResult result =
        run_program({std::string(AMAXSCOPE_SOURCE_DIR "/launch/") + script, "--help"});
    EXPECT_EQ(result.status, 0) << script << result.err;
    EXPECT_THAT(result.out, HasSubstr(std::string("usage: launch/") + script));
  }
}

TEST_F(Scripts, RecipeTableHasARowForEachRecipe) {
  write("data.txt", std::string(4000, 'a') + std::string(4000, 'b'));
  const ProgramResult result =
      run_program({AMAXSCOPE_SOURCE_DIR "/launch/recipe_table", "--data", "data.txt", "--steps", "2",
                   "--layers", "1", "--hidden", "32", "--heads", "4", "--seq", "16", "--batch", "2"},
                  {.environment = {{"AMAXSCOPE_PROGRAM", AMAXSCOPE_PROGRAM}}, .directory = folder_.string()});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::vector<std::string> lines = lines_of(result.out);
  // A row for each recipe, an empty line, and a row for each recipe but none and kind of tensor.
  ASSERT_EQ(lines.size(), 8U + 1U + 2U + 15U) << result.out;
  EXPECT_THAT(lines[2], HasSubstr("| none | "));
  EXPECT_THAT(lines[2], HasSubstr("+0.0000"));
  EXPECT_THAT(lines[7], HasSubstr("| nvfp4 | "));
  EXPECT_THAT(lines[11], HasSubstr("| delayed | activation | "));
  EXPECT_THAT(lines[25], HasSubstr("| nvfp4 | gradient | "));
  EXPECT_FALSE(exists("amaxscope_logs"));
}

TEST_F(Scripts, RecipeTableWithoutAProgramOrWithAWrongOptionSaysSo) {
  const auto table = [&](const char* program, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {AMAXSCOPE_SOURCE_DIR "/launch/recipe_table"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command,
                       {.environment = {{"AMAXSCOPE_PROGRAM", program}}, .directory = folder_.string()});
  };
  const ProgramResult missing = table("nosuch", {});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("nosuch is not built"));
  const ProgramResult wrong = table(AMAXSCOPE_PROGRAM, {"--stepz", "3"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--stepz"), HasSubstr("under recipe none failed")));
}

}  // namespace
}  // namespace amaxscope::test

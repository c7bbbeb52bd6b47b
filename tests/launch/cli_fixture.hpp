// A folder of its own for each test, and the program as a user starts it.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/run_program.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::test {

class CliTest : public ::testing::Test {
 protected:
  /// The program alone, in the test's folder.
  ProgramResult amaxscope(const std::vector<std::string>& arguments, ProgramOptions options = {}) const {
    std::vector<std::string> command = {AMAXSCOPE_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    options.directory = folder_.string();
    return run_program(command, options);
  }

  /// Under mpirun; every rank with the same arguments.
  ProgramResult amaxscope_job(int ranks, const std::vector<std::string>& arguments,
                              ProgramOptions options = {}) const {
    return amaxscope_jobs({{ranks, arguments}}, std::move(options));
  }

  struct Part {
    int ranks;
    std::vector<std::string> arguments;
  };
  /// One job whose ranks get different arguments.
  ProgramResult amaxscope_jobs(const std::vector<Part>& parts, ProgramOptions options = {}) const {
    std::vector<std::string> command = {AMAXSCOPE_SOURCE_DIR "/launch/mpirun_local", "--timeout", "60"};
    for (const Part& part : parts) {
      if (&part != &parts.front()) command.emplace_back(":");
      command.insert(command.end(), {"-n", std::to_string(part.ranks), AMAXSCOPE_PROGRAM});
      command.insert(command.end(), part.arguments.begin(), part.arguments.end());
    }
    options.directory = folder_.string();
    options.deadline = std::chrono::seconds(90);
    return run_program(command, options);
  }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return name;
  }
  [[nodiscard]] std::string read(const std::filesystem::path& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] bool exists(const std::filesystem::path& name) const {
    return std::filesystem::exists(folder_ / name);
  }

  const TemporaryFolder temporary_;
  std::filesystem::path folder_ = temporary_.path();
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace amaxscope::test

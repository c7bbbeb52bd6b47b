// Starts a program as a user would and keeps what it said.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace amaxscope::test {

struct ProgramResult {
  int status = -1;  ///< exit status; 128 + signal when it was ended by one
  std::string out;
  std::string err;
  double seconds = 0.0;
};

struct ProgramOptions {
  std::map<std::string, std::string> environment = {};  ///< added to this process's; empty value: unset
  std::string standard_input = {};
  std::string directory = {};         ///< empty: where the test runs
  std::chrono::seconds deadline{60};  ///< the program's process group is killed then
};

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace amaxscope::test

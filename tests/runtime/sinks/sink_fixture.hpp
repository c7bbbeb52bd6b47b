// A log dir of its own for each test, and what its files hold.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/sinks/sink.hpp"
#include "tests/runtime/sinks/write_probe.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::testing {

class SinkTest : public ::testing::Test {
 protected:
  SinkTest() { WriteProbe::reset(); }
  ~SinkTest() override { WriteProbe::reset(); }

  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<std::string> lines_of(const std::filesystem::path& path) {
    std::istringstream text(read(path));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }
  static void append(const std::filesystem::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary | std::ios::app) << text;
  }

  static StatRecord record_at(std::int64_t iteration, double value = 1.0) {
    StatRecord record;
    record.iteration = iteration;
    record.layer = "decoder.layers.1.mlp.linear_fc1";
    record.tensor = "activation";
    record.stats = {{"cur_amax", value, {}}};
    record.recipe = "delayed";
    record.group = {0, 1};
    record.layout = Layout::kShard0;
    return record;
  }

  const TemporaryFolder temporary;
  std::filesystem::path log_dir = temporary.path();
};

}  // namespace amaxscope::testing

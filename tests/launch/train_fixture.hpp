// Trainings small enough for a test: one layer, a few steps, a text of their own.
#pragma once

#include "tests/launch/cli_fixture.hpp"

namespace amaxscope::test {

class TrainFixture : public CliTest {
 protected:
  TrainFixture() {
    std::string text;
    for (int line = 0; line < 200; ++line) text += "line " + std::to_string(line * line) + " of the text\n";
    write("data.txt", text);
    write("observe.yaml", R"(ranges:
  enabled: True
  layers:
    layer_types: [linear_fc1, linear_fc2]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [cur_amax, mean, std, l2_norm]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, gradient]
      stats: [underflows%, mse, fp8_current_scaling_mse]
      freq: 2
)");
  }

  /// The arguments of a small training, with changes at the end: the last mention of an option counts.
  static std::vector<std::string> small(const std::vector<std::string>& changes) {
    std::vector<std::string> arguments = {"train",    "--data", "data.txt", "--steps", "3",
                                          "--layers", "1",      "--hidden", "32",      "--heads",
                                          "4",        "--seq",  "16",       "--batch", "2"};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    return arguments;
  }

  /// The object a successful training prints with --json, and nothing else.
  nlohmann::json trained(int ranks, std::vector<std::string> changes,
                         const ProgramOptions& options = {}) const {
    changes.emplace_back("--json");
    const ProgramResult result = amaxscope_job(ranks, small(changes), options);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 1U) << result.out;
    return result.status == 0 ? nlohmann::json::parse(result.out) : nlohmann::json();
  }
};

}  // namespace amaxscope::test

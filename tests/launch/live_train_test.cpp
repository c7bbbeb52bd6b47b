// A training that is talked to while it runs: its YAML is edited, its mpirun gets a signal, a rank's NaN ends
// the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <set>
#include <sstream>
#include <thread>

#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string logging(const std::string& stat) {
  return "stats:\n  enabled: True\n  layers:\n    layer_types: [linear_fc1]\n  transformer_engine:\n"
         "    LogTensorStats:\n      enabled: True\n      tensors: [activation]\n      stats: [" +
         stat + "]\n";
}

class LiveTrain : public TrainFixture {
 protected:
  nlohmann::json run_file() const {
    const auto file = nlohmann::json::parse(read("log/run.json"), nullptr, false);
    return file.is_object() ? file.at("runs").at(0) : nlohmann::json();
  }
  /// Whether `holds` came true before the time was up.
  static bool wait_until(const std::function<bool()>& holds) {
    for (int i = 0; i < 3000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  bool logs_iteration(int iteration) const {
    return read("log/metrics/rank_0.jsonl").find("{\"iteration\":" + std::to_string(iteration) + ",") !=
           std::string::npos;
  }
};

TEST_F(LiveTrain, AnEditedYamlTakesEffectOnAllRanksAtOnce) {
  write("debug.yaml", logging("max"));
  bool invalid_said = false;
  bool changed = false;
  std::thread editor([&] {
    wait_until([&] { return logs_iteration(5); });
    write("debug.yaml", logging("maxx"));
    invalid_said = wait_until([&] {
      return read("log/nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log").find("is not taken") !=
             std::string::npos;
    });
    write("debug.yaml", logging("min"));
    changed = wait_until([&] { return run_file().contains("config_changes"); });
  });
  const nlohmann::json result = trained(2, {"--tp", "2", "--steps", "1500", "--config", "debug.yaml",
                                            "--watch-config", "--poll-every", "5", "--log-dir", "log"});
  editor.join();
  EXPECT_EQ(result.at("steps"), 1500);
  EXPECT_TRUE(invalid_said);
  ASSERT_TRUE(changed);
  const auto changes = run_file().at("config_changes");
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].at("text"), logging("min"));
  const std::int64_t first = changes[0].at("iteration");
  EXPECT_EQ(first % 5, 1) << "after the poll of a multiple of five";
  // What each rank's own log says of the iterations around it.
  for (const std::string rank : {"0", "1"}) {
    std::istringstream lines(
        read("log/nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-" + rank + ".log"));
    std::int64_t last_max = -1;
    std::int64_t first_min = -1;
    for (std::string line; std::getline(lines, line);) {
      const auto at = line.find("iteration=");
      if (at == std::string::npos) continue;
      const std::int64_t iteration = std::stoll(line.substr(at + 10));
      if (line.find("_max ") != std::string::npos) last_max = std::max(last_max, iteration);
      if (line.find("_min ") != std::string::npos && first_min < 0) first_min = iteration;
    }
    EXPECT_EQ(last_max, first - 1) << "rank " << rank;
    EXPECT_EQ(first_min, first) << "rank " << rank;
  }
}

TEST_F(LiveTrain, ASignalToMpirunWritesTheStateOfAllRanks) {
  write("debug.yaml", logging("max"));
  bool written = false;
  std::thread sender([&] {
    wait_until([&] { return logs_iteration(5); });
    // The run is named after its first rank's process, whose parent is mpirun.
    const std::string id = run_file().at("run_id");
    std::istringstream stat(read("/proc/" + id.substr(id.rfind('-') + 1) + "/stat"));
    std::string skipped;
    pid_t parent = 0;
    stat >> skipped >> skipped >> skipped >> parent;
    if (parent > 1) kill(parent, SIGUSR1);
    written = wait_until([&] { return std::filesystem::exists(folder_ / "log/events"); });
  });
  const nlohmann::json result =
      trained(2, {"--tp", "2", "--steps", "1500", "--config", "debug.yaml", "--log-dir", "log"});
  sender.join();
  EXPECT_EQ(result.at("steps"), 1500);
  ASSERT_TRUE(written);
  std::set<int> ranks;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "log/events")) {
    if (!entry.path().filename().string().ends_with("_state.json")) continue;
    const auto state = nlohmann::json::parse(read(entry.path().string()));
    ranks.insert(state.at("rank").get<int>());
    EXPECT_EQ(state.at("layers")[0].at("name"), "decoder.layers.1.mlp.linear_fc1");
    EXPECT_EQ(state.at("iteration").get<std::int64_t>() % 10, 0);
  }
  EXPECT_THAT(ranks, ::testing::ElementsAre(0, 1));
}

TEST_F(LiveTrain, AStopEndsAllStagesWithTheCauseSaidOnce) {
  write("guard.yaml",
        "first_nan:\n  enabled: True\n  layers:\n    layer_types: [all]\n  transformer_engine:\n"
        "    NonFiniteGuard:\n      enabled: True\n      tensors: [activation, weight, gradient]\n      "
        "action: "
        "stop\n");
  const ProgramResult result =
      amaxscope_job(2, small({"--pp", "2", "--layers", "2", "--steps", "20", "--micro-batches", "2",
                              "--config", "guard.yaml", "--log-dir", "log", "--inject",
                              "overwrite_columnwise@layer=decoder.layers.2.mlp.linear_fc1,iteration=4"}));
  EXPECT_EQ(result.status, 1) << result.err;
  const std::string cause = "amaxscope: NonFiniteGuard of section first_nan";
  const auto first = result.err.find(cause);
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(cause, first + 1), std::string::npos) << result.err;
}

}  // namespace
}  // namespace amaxscope::test

// cases.md case 38: a disk that is full, for real: a small tmpfs in a mount namespace of the test's own.
#include <set>

#include "runtime/storage/safetensors.hpp"
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FullDisk : public TrainFixture {
 protected:
  void SetUp() override {
    for (const auto& kind : {std::vector<std::string>{"unshare", "--mount"},
                             std::vector<std::string>{"unshare", "--mount", "--user", "--map-root-user"}}) {
      unshare_ = kind;
      if (in_namespace("true", "64k").status == 0) return;
    }
    GTEST_SKIP() << "no tmpfs can be mounted here: unshare --mount and mount -t tmpfs are refused";
  }

  /// The command with a tmpfs of that size at "disk"; afterwards its content is in "kept".
  ProgramResult in_namespace(const std::string& command, const std::string& size) const {
    std::vector<std::string> arguments = unshare_;
    arguments.insert(arguments.end(),
                     {"sh", "-c",
                      "mkdir -p disk && mount -t tmpfs -o size=" + size + " tmpfs disk || exit 99; " +
                          command + "; status=$?; rm -rf kept; cp -r disk kept; exit $status"});
    return run_program(arguments, {.directory = folder_.string(), .deadline = std::chrono::seconds(90)});
  }

  /// Two ranks that train for some steps with the log directory on that disk.
  ProgramResult train(const std::string& config, int steps, const std::string& size,
                      const std::string& before = "true") const {
    std::string command =
        before + "; " AMAXSCOPE_SOURCE_DIR "/launch/mpirun_local --timeout 60 -n 2 " AMAXSCOPE_PROGRAM;
    for (const std::string& argument :
         small({"--tp", "2", "--recipe", "current", "--steps", std::to_string(steps), "--config", config,
                "--log-dir", "disk/logs", "--json"})) {
      command += " " + argument;
    }
    return in_namespace(command, size);
  }

  [[nodiscard]] std::vector<std::filesystem::path> kept(const std::string& extension) const {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "kept")) {
      if (entry.is_regular_file() && entry.path().string().ends_with(extension))
        found.push_back(entry.path());
    }
    return found;
  }

  static int times(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }

  std::vector<std::string> unshare_;
};

TEST_F(FullDisk, DumpsThatDoNotFitEndNothing) {
  write("dump.yaml", R"(all:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    DumpTensors: {enabled: True, tensors: [activation, weight, gradient], high_precision_tensor: True}
)");
  // Some 180 KiB of it are the flight records, which take their room at the start.
  const ProgramResult full = train("dump.yaml", 6, "500k");
  // The losses, which go to the same disk, may still fit or not.
  EXPECT_EQ(full.status, times(full.err, "its logs are not complete") > 0 ? 1 : 0) << full.err;
  const nlohmann::json roomy = trained(2, {"--tp", "2", "--recipe", "current", "--steps", "6"});
  EXPECT_EQ(nlohmann::json::parse(full.out).at("losses"), roomy.at("losses"))
      << "the training went on as it is";
  EXPECT_EQ(times(full.err, "the training goes on without this file"), 2)
      << "once on each rank: " << full.err;
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  // What was written before is whole, and nothing else is there.
  std::set<std::string> listed;
  for (const std::filesystem::path& manifest : kept("manifest.jsonl")) {
    const std::string text = read(manifest);
    EXPECT_TRUE(text.ends_with('\n'));
    for (const std::string& line : lines_of(text)) {
      const nlohmann::json entry = nlohmann::json::parse(line);
      if (entry.at("status") == "written") {
        listed.insert((manifest.parent_path() / entry.at("file").get<std::string>()).string());
      }
    }
  }
  EXPECT_GT(listed.size(), 5U);
  for (const std::filesystem::path& file : kept(".safetensors")) {
    const SafetensorsFile dump(file);
    for (const StoredTensor& tensor : dump.tensors())
      EXPECT_NO_THROW(static_cast<void>(dump.read(tensor))) << file;
  }
  for (const std::string& file : listed) EXPECT_TRUE(std::filesystem::exists(file)) << file;
  EXPECT_TRUE(kept(".tmp").empty());
}

TEST_F(FullDisk, LogsThatDoNotFitEndNothingAndAreSaidToBeIncomplete) {
  const ProgramResult full = train("observe.yaml", 30, "80k");
  EXPECT_EQ(full.status, 1) << "the policy of train is to abort: " << full.err;
  const nlohmann::json roomy = trained(2, {"--tp", "2", "--recipe", "current", "--steps", "30"});
  EXPECT_EQ(nlohmann::json::parse(full.out).at("losses"), roomy.at("losses"));
  EXPECT_THAT(full.err, AllOf(HasSubstr("the training is done, but its logs are not complete"),
                              HasSubstr("No space left on device")));
  const int stopped = times(full.err, "writes no more to it");
  EXPECT_GE(stopped, 1);
  EXPECT_LE(stopped, 4) << "once for each of two files of two ranks: " << full.err;
  // Up to the last step that fitted, everything is there.
  const ProgramResult check = amaxscope({"check", "--metrics", "kept/logs"});
  EXPECT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, HasSubstr("whole"));
  EXPECT_THAT(check.out + check.err, HasSubstr("unclosed"));
  for (const std::filesystem::path& log : kept("-0.log")) EXPECT_TRUE(read(log).ends_with('\n')) << log;
}

TEST_F(FullDisk, AFullDiskAtTheStartIsSaidBeforeTheTraining) {
  const ProgramResult full = train("observe.yaml", 3, "64k", "cat /dev/zero > disk/ballast 2>/dev/null");
  EXPECT_EQ(full.status, 1);
  EXPECT_EQ(full.out, "");
  EXPECT_THAT(full.err, AllOf(HasSubstr("disk/logs"), HasSubstr("No space left on device")));
}

TEST_F(FullDisk, AReadOnlyDiskIsRefusedAsBadInput) {
  const ProgramResult full = train("observe.yaml", 3, "64k", "mount -o remount,ro disk");
  EXPECT_EQ(full.status, 2);
  EXPECT_EQ(full.out, "");
  EXPECT_THAT(full.err, AllOf(HasSubstr("--log-dir disk/logs"), HasSubstr("no permission to write"),
                              Not(HasSubstr("rank 1"))));
}

}  // namespace
}  // namespace amaxscope::test

// Files of strangers, given to the program as a user gives them: no name in them reaches the terminal as a
// sequence or a shell as a command, and nothing of theirs in a log directory is written through.
#include <sys/stat.h>

#include "core/terminal_text.hpp"
#include "tests/launch/tensor_files_fixture.hpp"
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Clears a screen, sets a title, in C0 and in C1, turns the direction of writing; and what a shell would
/// run.
constexpr const char* kName =
    "layer\x1b[2J\x1b]0;title\x07\xc2\x9b"
    "31m\xe2\x80\xae$(touch pwned)`touch pwned`;touch pwned";
/// The same inside of a string of JSON.
constexpr const char* kNameInJson =
    R"(layer\u001b[2J\u001b]0;title\u0007\u009b31m\u202e$(touch pwned)`touch pwned`;touch pwned)";

class Strangers : public TensorFilesTest {
 protected:
  Strangers() {
    // Their run: a finding, a record whose codes are poor, a scalar, a broken line; every name is theirs.
    write_run("log", kNameInJson);
    write_run("other", "decoder.layers.1.mlp.linear_fc1");
  }
  void write_run(const std::string& folder, const std::string& name) const {
    fs::create_directories(folder_ / folder / "metrics");
    const auto filled = [&](std::string text) {
      for (std::size_t at = 0; (at = text.find("NAME", at)) != std::string::npos; at += name.size())
        text.replace(at, 4, name);
      return text;
    };
    write(folder + "/run.json",
          filled(
              R"({"schema_version":1,"runs":[{"run_id":"NAME","state":"closed","first_iteration":0,)"
              R"("last_iteration":1,"world_size":2,"parallel":{"NAME":2},"options":{"recipe":"NAME"},)"
              R"("config":{"source":"NAME","text":"NAME"},"alters_numerics":["NAME"],"other_paths":["NAME"],)"
              R"("section_layers":{"NAME":["NAME"]}}]})"));
    std::string lines = R"({"schema_version":1,"run_id":"NAME","rank":0})"
                        "\n";
    for (int iteration = 0; iteration < 2; ++iteration) {
      const std::string at = R"({"iteration":)" + std::to_string(iteration);
      lines += at + R"(,"layer":"NAME","tensor":"NAME","phase":"NAME","recipe":"NAME","format":"NAME",)"
                    R"("group":[0],"layout":"shard0","stats":{"NAME":1,"sqnr":2,"saturated_energy%":50}})"
                    "\n";
      lines += at + R"(,"scalars":{"NAME":2,"loss":2,"grad_norm":1}})"
                    "\n";
      lines += at +
               R"(,"finding":{"check":"NAME","layer":"NAME","tensor":"NAME","phase":"NAME","microbatch":0,)"
               R"("ranks":[0],"what":"NAME","details":{"NAME":"NAME"}}})"
               "\n";
      lines += at +
               R"(,"finding":{"check":"I2","layer":"NAME","tensor":"NAME","phase":"NAME","microbatch":0,)"
               R"("ranks":[1],"what":"NAME","details":{"sets":"NAME"}}})"
               "\n{\n";
      lines += at + R"(,"end_of_step":true,"records":4})"
                    "\n";
    }
    write(folder + "/metrics/rank_0.jsonl", filled(lines));
  }

  void expect_harmless(const std::vector<std::string>& arguments) const {
    const ProgramResult result = amaxscope(arguments);
    const std::string words = ::testing::PrintToString(arguments);
    EXPECT_LT(result.status, 3) << words << result.err;
    EXPECT_EQ(result.out, terminal_text(result.out)) << words;
    EXPECT_EQ(result.err, terminal_text(result.err)) << words;
    EXPECT_FALSE((result.out + result.err).empty()) << words;
  }
};

TEST_F(Strangers, NoNameOfARunReachesTheTerminal) {
  expect_harmless({"report", "log", "--text"});
  expect_harmless({"report", "log", "--text", "--against", "other"});
  expect_harmless({"report", "log"});
  expect_harmless({"diff", "log", "other"});
  expect_harmless({"diff", "other", "log"});
  expect_harmless({"watch", "log"});
  expect_harmless({"watch", "log", "--once"});
  expect_harmless({"check-records", "log"});
  EXPECT_FALSE(exists("pwned"));
}

TEST_F(Strangers, JsonOfARunIsPlainAsciiAndSaysTheNames) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"report", "log", "--json"},
                                             {"report", "log", "--json", "--against", "other"},
                                             {"diff", "log", "other", "--json"},
                                             {"check-records", "log", "--json"}}) {
    const ProgramResult result = amaxscope(arguments);
    EXPECT_TRUE(std::ranges::all_of(result.out, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); }))
        << ::testing::PrintToString(arguments);
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  }
  EXPECT_THAT(amaxscope({"report", "log", "--json"}).out, HasSubstr(R"(\u009b31m\u202e)"));
}

TEST_F(Strangers, NoNameOfATensorReachesTheTerminal) {
  const Tensor values(DType::kF32, Shape{32, 32});
  const Tensor codes(DType::kI64, Shape{4});
  tensors("theirs.safetensors", {{kName, values.view()}, {std::string(kName) + "2", codes.view()}},
          {{kName, kName}});
  expect_harmless({"analyze", "theirs.safetensors"});
  expect_harmless({"quantize", "theirs.safetensors", "-o", "out.safetensors"});
  const ProgramResult json = amaxscope({"analyze", "theirs.safetensors", "--json"});
  EXPECT_EQ(json.out, terminal_text(json.out));
  EXPECT_EQ(nlohmann::json::parse(json.out).at("rows").at(0).at("tensor"), kName);
  // The same in what is refused: a header, an index, a dump's metadata.
  write("bad.safetensors", std::string("\x40\0\0\0\0\0\0\0", 8) + "{\"" + kName + "\":1}");
  expect_harmless({"analyze", "bad.safetensors"});
  write("i.safetensors.index.json",
        std::string(R"({"weight_map":{")") + kNameInJson + R"(":"../)" + kNameInJson + "\"}}");
  expect_harmless({"analyze", "i.safetensors.index.json"});
  tensors("dump/rank_0/iter_000001/a.safetensors", {{"high_precision", values.view()}},
          {{"layer", kName}, {"tensor", "activation"}, {"iteration", "1"}, {"phase", kName}});
  expect_harmless({"replay", "dump", "--log-dir", "replayed"});
  EXPECT_FALSE(exists("pwned"));
}

/// Trainings whose log directory others can write to.
class SharedLogs : public TrainFixture {
 protected:
  [[nodiscard]] ProgramResult train(const std::string& umask,
                                    const std::vector<std::string>& changes = {}) const {
    std::vector<std::string> command = {"sh",
                                        "-c",
                                        "umask " + umask + "; exec \"$@\"",
                                        "sh",
                                        AMAXSCOPE_SOURCE_DIR "/launch/mpirun_local",
                                        "-n",
                                        "2",
                                        "--timeout",
                                        "60",
                                        AMAXSCOPE_PROGRAM};
    std::vector<std::string> arguments = {"--tp",         "2",    "--config",   "observe.yaml",
                                          "--log-dir",    "logs", "--save-dir", "state",
                                          "--save-every", "2",    "--json"};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    for (const std::string& word : small(arguments)) command.push_back(word);
    return run_program(command, {.directory = folder_.string(), .deadline = std::chrono::seconds(90)});
  }
  /// Of every file and folder below.
  [[nodiscard]] std::map<std::string, unsigned> modes_below(const std::string& name) const {
    std::map<std::string, unsigned> modes;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / name)) {
      struct stat about = {};
      EXPECT_EQ(::lstat(entry.path().c_str(), &about), 0);
      modes[entry.path().string()] = about.st_mode & 07777U;
    }
    return modes;
  }
};

TEST_F(SharedLogs, FilesAndFoldersHaveTheUmaskOfTheUser) {
  ASSERT_EQ(train("077").status, 0);
  for (const char* below : {"logs", "state"}) {
    const auto modes = modes_below(below);
    EXPECT_GT(modes.size(), 2U) << below;
    for (const auto& [path, mode] : modes) EXPECT_EQ(mode & 077U, 0U) << path;
  }
  EXPECT_EQ(amaxscope({"report", "logs"}).status, 0);
}

TEST_F(SharedLogs, NoFileIsWritableByTheWorldWhateverTheUmask) {
  ASSERT_EQ(train("0").status, 0);
  for (const auto& [path, mode] : modes_below("logs")) {
    if (!fs::is_regular_file(path)) continue;
    EXPECT_EQ(mode & 022U, 0U) << path;
  }
}

TEST_F(SharedLogs, NothingIsWrittenThroughALinkOrWaitedForInAPipe) {
  write("theirs", "theirs");
  for (const char* name : {"metrics/rank_1.jsonl", "nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log",
                           "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-1.log"}) {
    for (const bool pipe : {false, true}) {
      fs::remove_all(folder_ / "logs");
      fs::create_directories((folder_ / "logs" / name).parent_path());
      if (pipe) {
        ASSERT_EQ(mkfifo((folder_ / "logs" / name).c_str(), 0600), 0);
      } else {
        fs::create_symlink(folder_ / "theirs", folder_ / "logs" / name);
      }
      const ProgramResult result = train("022");
      EXPECT_NE(result.status, 124) << name;
      EXPECT_LT(result.seconds, 45) << name;
      EXPECT_THAT(result.err, AllOf(HasSubstr(name), HasSubstr("cannot be opened: it is"))) << name;
      EXPECT_EQ(read("theirs"), "theirs") << name;
    }
  }
}

TEST_F(SharedLogs, LinksUnderNamesThatAreReplacedAreReplaced) {
  write("theirs", "theirs");
  fs::create_directories(folder_ / "logs/flight");
  for (const char* name : {"logs/flight/rank_0.flight", "logs/flight/rank_1.flight"})
    fs::create_symlink(folder_ / "theirs", folder_ / name);
  const ProgramResult result = train("022");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read("theirs"), "theirs");
  EXPECT_FALSE(fs::is_symlink(folder_ / "logs/flight/rank_0.flight"));
}

TEST_F(SharedLogs, AStateFolderNamesNoPathElsewhere) {
  ASSERT_EQ(train("022").status, 0);
  for (const char* name :
       {"../state/iter_000002", "/etc", "iter_000002/../iter_000002", "iter_2", "iter_000002x", ""}) {
    write("state/newest", std::string(name) + "\n");
    const ProgramResult result = train("022", {"--resume", "state", "--log-dir", "again"});
    EXPECT_EQ(result.status, 2) << name << result.err;
    EXPECT_THAT(result.err, HasSubstr("newest: names")) << name;
  }
}

}  // namespace
}  // namespace amaxscope::test

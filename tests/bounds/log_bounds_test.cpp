// Log directories of strangers, as every reader of one takes them: an answer within seconds and half a GiB,
// and the rest of the directory is still read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "report/page/page.hpp"
#include "report/verdict_text.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "runtime/sinks/run_file.hpp"
#include "tests/bounds/limited.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class LogBounds : public ::testing::Test {
 protected:
  LogBounds() {
    run_.describe();
    run_.healthy_step(0);
  }
  [[nodiscard]] fs::path path(const std::string& name) const { return run_.path() / name; }
  /// The verdict as text, and the problems, after the page was written.
  [[nodiscard]] std::string judged(const Limits& limits = {}) const {
    const Limited result = limited(
        [&] {
          static_cast<void>(report::write_page(run_.path(), path("report.html")));
          const report::Verdict verdict = report::judge(run_.path());
          std::string said = report::as_text(verdict);  // its lines are broken at a width
          for (const std::string& problem : verdict.reading.problems) said += problem + "\n";
          return said;
        },
        limits);
    return result.said;
  }
  void hole(const std::string& name) const { fs::resize_file(path(name), std::uintmax_t{1} << 40U); }
  /// Puts what make() makes where a file was.
  template <class Make>
  [[nodiscard]] std::string judged_with(const std::string& name, const Make& make) const {
    fs::rename(path(name), path(name + ".aside"));
    make(path(name));
    const std::string said = judged();
    fs::remove(path(name));
    fs::rename(path(name + ".aside"), path(name));
    return said;
  }

  const report::test::RunFolder run_;
};

void make_pipe(const fs::path& path) { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }
void make_endless(const fs::path& path) { fs::create_symlink("/dev/zero", path); }
void make_loop(const fs::path& path) { fs::create_symlink(path.filename(), path); }
void make_folder_there(const fs::path& path) { fs::create_directory(path); }

TEST_F(LogBounds, AWholeDirectoryIsJudged) { EXPECT_THAT(judged(), HasSubstr("nothing found in what was measured")); }

TEST_F(LogBounds, MetricsThatAreNoFile) {
  for (const auto& make : {make_pipe, make_endless, make_loop, make_folder_there})
    EXPECT_THAT(judged_with("metrics/rank_0.jsonl", make),
                AllOf(HasSubstr("no data"), HasSubstr("rank_0.jsonl")));
  make_pipe(path("metrics/rank_1.jsonl"));
  EXPECT_THAT(judged(), AllOf(HasSubstr("rank_1.jsonl: is not a regular file"), Not(HasSubstr("no data"))));
}

TEST_F(LogBounds, ADescriptionThatIsNoFile) {
  for (const auto& make : {make_pipe, make_endless, make_loop, make_folder_there})
    EXPECT_THAT(judged_with("run.json", make), HasSubstr("run.json is not"));
}

TEST_F(LogBounds, HolesOfATebibyte) {
  hole("metrics/rank_0.jsonl");
  hole("run.json");
  EXPECT_THAT(judged(), AllOf(HasSubstr("a line of more than 64 MiB; the file is read no further"),
                              HasSubstr("run.json is not read"), HasSubstr("at most 268435456 are read")));
}

TEST_F(LogBounds, NestingAndMoreValuesThanMemory) {
  run_.line(std::string(3 << 20, '['));
  run_.line(R"({"schema_version":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_THAT(judged(), HasSubstr("2 of 5 lines could not be read"));
  std::string many = R"({"schema_version":1,"runs":[)";
  while (many.size() < 200'000'000) many += "[],[],[],[],[],[],[],[],[],[],";
  std::ofstream(path("run.json")) << many << "[]]}";
  EXPECT_THAT(judged(), HasSubstr("run.json is not read: it has more than 4000000 values"));
  std::ofstream(path("run.json")) << R"({"schema_version":1,"runs":)" + std::string(1'000'000, '[');
  EXPECT_THAT(judged(), HasSubstr("run.json is not read: it is nested deeper than 32 levels"));
}

TEST_F(LogBounds, LayersWithoutEnd) {
  // 100 MB of records, each of another layer: what is kept of them is bounded by what was read.
  std::ofstream file(path("metrics/rank_0.jsonl"), std::ios::app);
  const std::string tail(900, 'n');
  for (int layer = 0; layer < 100'000; ++layer) {
    file << fmt::format(
        R"({{"iteration":1,"layer":"{}{}","tensor":"weight","phase":"forward","recipe":"current",)"
        R"("group":[0],"layout":"shard0","stats":{{"sqnr":31}}}})"
        "\n",
        layer, tail);
  }
  file << R"({"iteration":1,"end_of_step":true,"records":100000})"
       << "\n";
  file.close();
  EXPECT_THAT(judged({.seconds = 20, .mebibytes = 1536}), HasSubstr("nothing found in what was measured"));
}

/// What a run that goes on in such a directory says.
class GoesOnBounds : public LogBounds {
 protected:
  [[nodiscard]] std::string sink() const {
    return limited([&] {
             const auto sink = make_json_lines_sink(run_.path(), 0, {.run_id = "next"});
             sink->scalars(7, {{"loss", 1.0}});
             sink->end_of_step(7);
             return std::string("written");
           })
        .said;
  }
  [[nodiscard]] std::string described() const {
    return limited([&] {
             RunDescription next;
             next.run_id = "next";
             write_run_file(run_.path(), next);
             return std::string("written");
           })
        .said;
  }
};

TEST_F(GoesOnBounds, InADirectoryOfItsOwn) {
  EXPECT_EQ(sink(), "written");
  EXPECT_EQ(described(), "written");
}

TEST_F(GoesOnBounds, NothingIsWaitedForFollowedOrReadWithoutEnd) {
  const std::string theirs = path("of_somebody").string();
  std::ofstream(theirs) << "theirs\n";
  const auto link = [&](const fs::path& at) { fs::create_symlink(theirs, at); };
  for (const std::function<void(const fs::path&)>& make :
       {std::function<void(const fs::path&)>(make_pipe), std::function<void(const fs::path&)>(make_endless),
        std::function<void(const fs::path&)>(make_loop), std::function<void(const fs::path&)>(link)}) {
    fs::remove(path("metrics/rank_0.jsonl"));
    make(path("metrics/rank_0.jsonl"));
    EXPECT_THAT(sink(), AllOf(StartsWith("refused: "), HasSubstr("rank_0.jsonl")));
  }
  std::string content;
  std::getline(std::ifstream(theirs), content, '\0');
  EXPECT_EQ(content, "theirs\n");
}

TEST_F(GoesOnBounds, HolesAreNotReadThrough) {
  hole("metrics/rank_0.jsonl");
  EXPECT_THAT(sink(), AllOf(StartsWith("refused: "), HasSubstr("rank_0.jsonl"),
                            HasSubstr("a line of more than 4 MiB")));
  hole("run.json");
  EXPECT_THAT(described(),
              AllOf(StartsWith("refused: "), HasSubstr("run.json"), HasSubstr("at most 268435456")));
}

TEST_F(GoesOnBounds, ADescriptionOfAStranger) {
  for (const std::string& text :
       {R"({"schema_version":1,"runs":[)" + std::string(200'000, '[') + std::string(200'000, ']') + "]}",
        R"({"runs":[],"schema_version":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}"}) {
    std::ofstream(path("run.json"), std::ios::trunc) << text;
    EXPECT_THAT(described(), AllOf(StartsWith("refused: "), HasSubstr("is not the description of a run")));
  }
  fs::remove(path("run.json"));
  std::ofstream(path("of_somebody")) << "theirs";
  fs::create_symlink("of_somebody", path("run.json"));
  EXPECT_THAT(described(), StartsWith("refused: "));
  fs::remove(path("run.json"));
  fs::create_symlink("nowhere", path("run.json"));
  EXPECT_EQ(described(), "written");  // the link was replaced, not followed
  EXPECT_FALSE(fs::exists(path("nowhere")));
}

}  // namespace
}  // namespace amaxscope::test

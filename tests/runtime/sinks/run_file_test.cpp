#include "runtime/sinks/run_file.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "tests/runtime/sinks/sink_fixture.hpp"

namespace amaxscope {
namespace {

using nlohmann::json;
using testing::WriteProbe;

class RunFile : public testing::SinkTest {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return log_dir / "run.json"; }
  [[nodiscard]] json content() const { return json::parse(read(file())); }
  static RunDescription description(std::string id) {
    RunDescription run;
    run.run_id = std::move(id);
    run.config_source = "debug.yaml";
    run.config_text = "a:\n  b: \"\xC3\xA9\"\n";
    run.config_digest = "00ff00ff00ff00ff";
    run.world_size = 4;
    run.parallel = {{"dp", 2}, {"tp", 2}};
    run.options = {{"amax_scope", "tensor"}};
    run.alters_numerics = {"FakeQuant in section a"};
    run.other_paths = {"output_layer: tied"};
    run.section_layers = {{"a", {"fc1", "fc2"}}};
    run.first_iteration = 10;
    run.start = std::chrono::sys_days(std::chrono::year(2026) / 1 / 31) + std::chrono::hours(5) +
                std::chrono::milliseconds(7);
    return run;
  }
};

TEST_F(RunFile, HoldsEverything) {
  write_run_file(log_dir / "deep" / "dir", description("one"));
  const json all = json::parse(read(log_dir / "deep" / "dir" / "run.json"));
  EXPECT_EQ(all["schema_version"], 1);
  ASSERT_EQ(all["runs"].size(), 1U);
  EXPECT_EQ(
      all["runs"][0],
      (json{{"run_id", "one"},
            {"state", "unclosed"},
            {"start", "2026-01-31T05:00:00.007Z"},
            {"first_iteration", 10},
            {"world_size", 4},
            {"parallel", {{"dp", 2}, {"tp", 2}}},
            {"options", {{"amax_scope", "tensor"}}},
            {"config",
             {{"source", "debug.yaml"}, {"digest", "00ff00ff00ff00ff"}, {"text", "a:\n  b: \"\xC3\xA9\"\n"}}},
            {"section_layers", {{"a", {"fc1", "fc2"}}}},
            {"alters_numerics", {"FakeQuant in section a"}},
            {"other_paths", {"output_layer: tied"}}}));
}

TEST_F(RunFile, ARunWrittenAgainReplacesItself) {
  write_run_file(log_dir, description("one"));
  write_run_file(log_dir, description("two"));
  RunDescription more = description("one");
  more.section_layers["b"] = {"fc3"};
  write_run_file(log_dir, more);
  const json all = content();
  ASSERT_EQ(all["runs"].size(), 2U);
  EXPECT_EQ(all["runs"][0]["section_layers"]["b"], json::array({"fc3"}));
  EXPECT_EQ(all["runs"][1]["run_id"], "two");
}

TEST_F(RunFile, EmptyPartsKeepTheirTypes) {
  write_run_file(log_dir, RunDescription());
  const json run = content()["runs"][0];
  for (const char* mapping : {"parallel", "options", "section_layers"})
    EXPECT_TRUE(run[mapping].is_object()) << mapping;
  for (const char* list : {"alters_numerics", "other_paths"}) EXPECT_TRUE(run[list].is_array()) << list;
}

TEST_F(RunFile, ARestartAddsItselfAndClosingMarksTheRightRun) {
  write_run_file(log_dir, description("one"));
  write_run_file(log_dir, description("two"));
  mark_run_closed(log_dir, "two", 41);
  const json runs = content()["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["run_id"], "one");
  EXPECT_EQ(runs[0]["state"], "unclosed");
  EXPECT_FALSE(runs[0].contains("last_iteration"));
  EXPECT_EQ(runs[1]["state"], "closed");
  EXPECT_EQ(runs[1]["last_iteration"], 41);
}

TEST_F(RunFile, NothingElseStaysInTheFolder) {
  write_run_file(log_dir, description("one"));
  mark_run_closed(log_dir, "one", 1);
  const auto entries = std::distance(std::filesystem::directory_iterator(log_dir), {});
  EXPECT_EQ(entries, 1);
}

TEST_F(RunFile, AFullDiskLeavesTheOldContent) {
  write_run_file(log_dir, description("one"));
  const std::string before = read(file());
  WriteProbe::let_disk_be_full_after(100);
  EXPECT_THROW(write_run_file(log_dir, description("two")), Error);
  WriteProbe::reset();
  EXPECT_EQ(read(file()), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(log_dir), {}), 1);
}

TEST_F(RunFile, WhatIsNotARunFileIsNotOverwritten) {
  for (const char* text : {"", "{", "[]", R"({"runs":[]})", R"({"schema_version":2,"runs":[]})"}) {
    std::filesystem::remove(file());
    append(file(), text);
    try {
      write_run_file(log_dir, description("one"));
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("run.json"));
    }
    EXPECT_EQ(read(file()), text);
  }
}

TEST_F(RunFile, ClosingAnUnknownRunIsAnError) {
  EXPECT_THROW(mark_run_closed(log_dir, "one", 0), Error);
  write_run_file(log_dir, description("one"));
  EXPECT_THROW(mark_run_closed(log_dir, "two", 0), Error);
}

}  // namespace
}  // namespace amaxscope

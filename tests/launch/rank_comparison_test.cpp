// Case 28: which ranks differ, in what.
#include "launch/rank_comparison.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "launch/doctor_clock.hpp"
#include "launch/doctor_findings.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RankReport sound(const std::string& host = "a") {
  return {.host = host,
          .versions = {{"MPI", "v4"}},
          .limits = {{"open files", "1024"}},
          .shared_memory_bytes = 2ULL << 30U,
          .environment = {"NCCL_DEBUG=INFO"}};
}

TEST(RankComparison, RanksOfDifferentHostsAreAlike) {
  RankReport other = sound("b");
  other.local_rank = 1;
  other.core_list = "4-7";
  other.device_uuid = "GPU-b";
  EXPECT_THAT(differences({sound(), other}), IsEmpty());
  EXPECT_THAT(notes_on({sound(), other}), IsEmpty());
  EXPECT_THAT(common_settings({sound(), other}), ElementsAre("NCCL_DEBUG=INFO"));
}

TEST(RankComparison, TheRankWithoutAVariableIsNamed) {
  RankReport without = sound();
  without.environment = {};
  const auto found = differences({without, sound(), sound(), sound()});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].matters);
  // The value of the most ranks comes first.
  EXPECT_THAT(difference_rows(found), ElementsAre(ElementsAre("what differs", "on", "value"),
                                                  ElementsAre("NCCL_DEBUG", "ranks 1-3", "INFO"),
                                                  ElementsAre("", "rank 0", "not set")));
  EXPECT_THAT(common_settings({without, sound()}), IsEmpty());
}

TEST(RankComparison, AnEmptyVariableIsNotAMissingOne) {
  RankReport empty = sound();
  empty.environment = {"NCCL_DEBUG="};
  RankReport without = sound();
  without.environment = {};
  EXPECT_EQ(differences({empty, without}).size(), 1U);
}

TEST(RankComparison, AnotherConfigIsNamedWithBothDigests) {
  RankReport first = sound();
  first.config_digest = "aaaa";
  RankReport second = sound();
  second.config_digest = "bbbb";
  EXPECT_THAT(difference_rows(differences({first, second, first})),
              ElementsAre(ElementsAre("what differs", "on", "value"),
                          ElementsAre("config", "ranks 0, 2", "aaaa"), ElementsAre("", "rank 1", "bbbb")));
}

TEST(RankComparison, OtherVersionsMatterAndOtherLimitsAreWorthKnowing) {
  RankReport other = sound("b");
  other.versions["MPI"] = "v5";
  other.versions["NCCL"] = "NCCL 2";
  other.limits["open files"] = "64";
  other.cores = 9;
  const auto found = differences({sound(), other});
  std::vector<std::pair<std::string, bool>> kinds;
  for (const Difference& difference : found) kinds.emplace_back(difference.what, difference.matters);
  EXPECT_THAT(kinds, ElementsAre(std::pair("MPI", true), std::pair("NCCL", true),
                                 std::pair("open files", false), std::pair("number of cores", false)));
  EXPECT_THAT(difference_rows(found)[3], ElementsAre("NCCL", "rank 0", "none"));
}

TEST(RankComparison, SmallSharedMemoryIsNotedOnceForAHost) {
  RankReport small = sound("b");
  small.shared_memory_bytes = 64ULL << 20U;
  EXPECT_THAT(
      notes_on({sound(), small, small}),
      ElementsAre(AllOf(HasSubstr("/dev/shm on host b has 64 MiB (ranks 1, 2)"), HasSubstr("--shm-size"))));
}

TEST(RankComparison, AClockThatIsASecondOffIsNoted) {
  RankReport early = sound("b");
  early.clock_offset_seconds = -3600.5;
  RankReport nearly = sound("c");
  nearly.clock_offset_seconds = 0.9;
  EXPECT_THAT(notes_on({sound(), early, nearly}),
              ElementsAre(HasSubstr("the clock of rank 1 (host b) is 3600.5 s behind that of rank 0")));
  early.clock_offset_seconds = 1.0;
  EXPECT_THAT(notes_on({sound(), early}), ElementsAre(HasSubstr("1.0 s ahead of that of rank 0")));
}

TEST(RankComparison, AClockReadWithinTheWindowMayAgree) {
  EXPECT_EQ(certain_offset(100, 200, 100), 0);
  EXPECT_EQ(certain_offset(100, 200, 200), 0);
  EXPECT_EQ(certain_offset(100, 200, 90), -10);
  EXPECT_EQ(certain_offset(100, 200, 230), 30);
}

TEST(DoctorFindings, OnlyWhatMattersIsInTheWay) {
  RankReport few = sound("b");
  few.limits["open files"] = "64";
  Findings findings{{{"MPI", "v4"}}, {sound(), few}, {"a note"}, {}};
  EXPECT_TRUE(all_well(findings));
  EXPECT_THAT(as_text(findings),
              AllOf(HasSubstr("what differs"), HasSubstr("note: a note\n"), HasSubstr("NCCL_DEBUG=INFO"),
                    HasSubstr("nothing in the way"), Not(HasSubstr("problem"))));
  findings.ranks[1].environment = {};
  EXPECT_FALSE(all_well(findings));
  EXPECT_THAT(as_text(findings), AllOf(HasSubstr("problem: the ranks differ in NCCL_DEBUG;"),
                                       Not(HasSubstr("nothing in the way"))));
  findings = {{}, {sound()}, {}, {"a singleton"}};
  EXPECT_FALSE(all_well(findings));
  EXPECT_THAT(as_text(findings), HasSubstr("problem: a singleton\n"));
}

TEST(DoctorFindings, AsJson) {
  RankReport without = sound("b");
  without.environment = {};
  const auto json =
      nlohmann::json::parse(as_json({{{"MPI", "v4"}, {"NCCL", "none"}}, {sound(), without}, {"n"}, {"p"}}));
  EXPECT_EQ(json.at("machine").at("MPI"), "v4");
  EXPECT_EQ(json.at("ranks").at(1).at("rank"), 1);
  EXPECT_EQ(json.at("ranks").at(1).at("host"), "b");
  const nlohmann::json expected = {
      {"what", "NCCL_DEBUG"},
      {"matters", true},
      {"values", {{{"value", "INFO"}, {"ranks", {0}}}, {{"value", "not set"}, {"ranks", {1}}}}}};
  EXPECT_EQ(json.at("differences"), nlohmann::json::array({expected}));
  EXPECT_EQ(json.at("notes").at(0), "n");
  EXPECT_EQ(json.at("problems").at(0), "p");
  EXPECT_EQ(json.at("well"), false);
}

}  // namespace
}  // namespace amaxscope::launch

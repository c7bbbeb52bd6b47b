#include "launch/failure.hpp"

#include <gtest/gtest.h>

#include <new>

#include "core/error.hpp"

namespace amaxscope::launch {
namespace {

Failure failure_of(auto thrown) { return describe(std::make_exception_ptr(thrown)); }

TEST(Failure, UserCanMendUsageConfigAndInput) {
  EXPECT_EQ(failure_of(Error(ErrorCode::kUsage, "a")), (Failure{kBadInput, "a"}));
  EXPECT_EQ(failure_of(Error(ErrorCode::kConfig, "b")), (Failure{kBadInput, "b"}));
  EXPECT_EQ(failure_of(Error(ErrorCode::kInput, "c")), (Failure{kBadInput, "c"}));
}

TEST(Failure, EverythingElseIsAFailedRun) {
  EXPECT_EQ(failure_of(Error(ErrorCode::kMismatch, "d")), (Failure{kAnswerIsNo, "d"}));
  EXPECT_EQ(failure_of(std::bad_alloc()), (Failure{kAnswerIsNo, "out of memory"}));
  EXPECT_EQ(failure_of(std::runtime_error("e")), (Failure{kAnswerIsNo, "e"}));
  EXPECT_EQ(failure_of(7), (Failure{kAnswerIsNo, "unknown exception"}));
}

TEST(Failure, ProgramIsNamedUnlessTheMessageBeginsWithItsPlace) {
  EXPECT_EQ(error_lines("no such file"), "amaxscope: no such file\n");
  EXPECT_EQ(error_lines("dir/a.yaml:12:7: unknown key"), "dir/a.yaml:12:7: unknown key\n");
  EXPECT_EQ(error_lines("c:d.yaml:3:1: x\nc:d.yaml:4:1: y"), "c:d.yaml:3:1: x\nc:d.yaml:4:1: y\n");
}

TEST(Failure, ColonsAloneAreNoPlace) {
  EXPECT_EQ(error_lines("a.yaml: missing"), "amaxscope: a.yaml: missing\n");
  EXPECT_EQ(error_lines("a.yaml:12: missing"), "amaxscope: a.yaml:12: missing\n");
  EXPECT_EQ(error_lines("first\na.yaml:1:2: second"), "amaxscope: first\na.yaml:1:2: second\n");
}

TEST(Failure, RankListJoinsNeighbours) {
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 1}), "ranks 0, 1");
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8, 9}), "ranks 0-2, 5, 7-9");
}

TEST(Failure, SharedMessageIsPrintedOnce) {
  EXPECT_EQ(job_error_lines({{kBadInput, "bad"}, {kBadInput, "bad"}}), "amaxscope: bad\n");
}

TEST(Failure, MessageOfSomeRanksNamesThem) {
  EXPECT_EQ(job_error_lines({{}, {kBadInput, "bad"}, {kBadInput, "worse"}, {kBadInput, "bad"}}),
            "amaxscope: ranks 1, 3: bad\namaxscope: rank 2: worse\n");
}

TEST(Failure, ConfigErrorsOfOneRankKeepTheirPlaces) {
  EXPECT_EQ(job_error_lines({{}, {kBadInput, "a.yaml:1:1: x\na.yaml:2:1: y"}}),
            "amaxscope: rank 1:\na.yaml:1:1: x\na.yaml:2:1: y\n");
}

TEST(Failure, NobodyFailedSaysNothing) { EXPECT_EQ(job_error_lines({{}, {}}), ""); }

}  // namespace
}  // namespace amaxscope::launch

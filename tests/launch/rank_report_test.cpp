#include "launch/rank_report.hpp"

#include <gmock/gmock.h>

namespace amaxscope::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankReport, SurvivesTheWay) {
  const RankReport report{"node \"7\"", 3, 2, {"NCCL_DEBUG=INFO", "OMP_NUM_THREADS="}, "00ff00ff00ff00ff"};
  EXPECT_EQ(parse_rank_report(to_text(report)), report);
}

TEST(RankReport, AlikeRanksDifferInNothing) {
  const RankReport report{"a", 0, 2, {"NCCL_DEBUG=INFO"}, "d"};
  RankReport other = report;
  other.host = "b";
  other.local_rank = 1;
  EXPECT_THAT(differences({report, other}), IsEmpty());
}

TEST(RankReport, TheRankWithoutAVariableIsNamed) {
  const RankReport with{"a", 0, 2, {"NCCL_DEBUG=INFO"}, ""};
  const RankReport without{"a", 3, 2, {}, ""};
  EXPECT_THAT(differences({with, with, with, without}),
              ElementsAre("NCCL_DEBUG differs: INFO on ranks 0-2; not set on rank 3"));
}

TEST(RankReport, AnotherConfigIsNamed) {
  EXPECT_THAT(differences({{"a", 0, 2, {}, "aaaa"}, {"a", 1, 2, {}, "bbbb"}}),
              ElementsAre("the config differs: aaaa on rank 0; bbbb on rank 1"));
}

TEST(RankReport, ConfigColumnOnlyWhenAsked) {
  EXPECT_THAT(
      rank_rows({{"a", 0, 2, {}, ""}}),
      ElementsAre(ElementsAre("rank", "host", "local rank", "cores"), ElementsAre("0", "a", "0", "2")));
  EXPECT_THAT(rank_rows({{"a", 0, 2, {}, "ff"}}),
              ElementsAre(ElementsAre("rank", "host", "local rank", "cores", "config"),
                          ElementsAre("0", "a", "0", "2", "ff")));
}

}  // namespace
}  // namespace amaxscope::launch

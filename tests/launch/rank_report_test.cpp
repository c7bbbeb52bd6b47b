#include "launch/rank_report.hpp"

#include <gmock/gmock.h>

namespace amaxscope::launch {
namespace {

using ::testing::ElementsAre;

TEST(RankReport, SurvivesTheWay) {
  const RankReport report{.host = "node \"7\"",
                          .local_rank = 3,
                          .local_ranks = 4,
                          .device = "cuda:0",
                          .device_uuid = "GPU-1",
                          .cores = 2,
                          .core_list = "0, 2",
                          .versions = {{"MPI", "Open MPI v4.1.4"}},
                          .limits = {{"open files", "1024"}},
                          .shared_memory_bytes = 1ULL << 40U,
                          .shared_memory_free_bytes = 7,
                          .clock_offset_seconds = -2.5,
                          .environment = {"NCCL_DEBUG=INFO", "OMP_NUM_THREADS="},
                          .warning = "odd",
                          .config_digest = "00ff00ff00ff00ff"};
  EXPECT_EQ(parse_rank_report(to_text(report)), report);
}

TEST(RankReport, ARowSaysWhereTheRankRunsAndWhatItMayUse) {
  RankReport report{.host = "a",
                    .local_rank = 1,
                    .local_ranks = 2,
                    .device = "cuda:1",
                    .device_uuid = "GPU-b",
                    .cores = 3,
                    .core_list = "0-2",
                    .limits = {{"locked memory", "8 MiB"}, {"open files", "1024"}},
                    .shared_memory_bytes = 100,
                    .shared_memory_free_bytes = 5U << 20U};
  EXPECT_THAT(rank_rows({report}),
              ElementsAre(ElementsAre("rank", "host", "local rank", "device", "cores", "locked memory",
                                      "open files", "/dev/shm free", "clock"),
                          ElementsAre("0", "a", "1 of 2", "cuda:1 GPU-b", "3 (0-2)", "8 MiB", "1024", "5 MiB",
                                      "same")));
  report.clock_offset_seconds = -3.25;
  EXPECT_EQ(rank_rows({report})[1].back(), "-3.2 s");
  EXPECT_EQ(rank_rows({report})[0].size(), 9U);
}

TEST(RankReport, TheConfigHasAColumnWhenSomeRankHasOne) {
  const RankReport with{.host = "a", .config_digest = "ff"};
  const auto rows = rank_rows({with, {.host = "a"}});
  EXPECT_EQ(rows[0].back(), "config");
  EXPECT_EQ(rows[1].back(), "ff");
  EXPECT_EQ(rows[2].back(), "none");
}

}  // namespace
}  // namespace amaxscope::launch

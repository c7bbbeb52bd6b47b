// Rank arithmetic against tables worked out by hand from Megatron's rule.
#include <gmock/gmock.h>

#include "collectives/process_groups.hpp"
#include "core/error.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Groups = std::vector<std::vector<int>>;

TEST(RankGrid, SixteenRanksByTwoOnEveryAxis) {
  const RankGrid grid(16, {.tp = 2, .cp = 2, .pp = 2});
  EXPECT_EQ(grid.dp(), 2);
  EXPECT_EQ(grid.world_size(), 16);
  EXPECT_EQ(grid.groups("tp"),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(grid.groups("cp"),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(grid.groups("dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(grid.groups("pp"),
            (Groups{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}));
  EXPECT_EQ(grid.groups("tp-cp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grid.groups("dp-cp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(grid.groups("tp-dp-cp"), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(grid.groups("cp-dp-tp"), grid.groups("tp-dp-cp")) << "the order of the names does not matter";
}

TEST(RankGrid, UnequalSizes) {
  // rank = tp + 2 * (dp + 3 * pp), tp 2, dp 3, pp 2.
  const RankGrid grid(12, {.tp = 2, .pp = 2});
  EXPECT_EQ(grid.dp(), 3);
  EXPECT_EQ(grid.groups("dp"), (Groups{{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
  EXPECT_EQ(grid.groups("pp"), (Groups{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
  EXPECT_EQ(grid.coordinate(11, "tp"), 1);
  EXPECT_EQ(grid.coordinate(11, "dp"), 2);
  EXPECT_EQ(grid.coordinate(11, "pp"), 1);
  EXPECT_EQ(grid.coordinate(4, "dp"), 2);
  EXPECT_EQ(grid.coordinate(4, "pp"), 0);
}

TEST(RankGrid, ExpertLayersLieDifferentlyOverTheSameRanks) {
  // Dense: tp 4, dp 2, pp 2. Experts: expert-tp 2, ep 2, so expert-dp 2; pp the same.
  const RankGrid grid(16, {.tp = 4, .pp = 2, .ep = 2, .expert_tp = 2});
  EXPECT_EQ(grid.groups("tp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grid.groups("expert-tp"),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(grid.groups("ep"),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(grid.groups("expert-dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(grid.groups("ep-expert-dp"),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(grid.groups("expert-tp-ep"),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(grid.coordinate(13, "expert-tp"), 1);
  EXPECT_EQ(grid.coordinate(13, "ep"), 0);
  EXPECT_EQ(grid.coordinate(13, "expert-dp"), 1);
  EXPECT_EQ(grid.coordinate(13, "pp"), 1);
}

TEST(RankGrid, OneRankIsItsOwnGroupOnEveryAxis) {
  const RankGrid grid(1, {});
  for (const char* axes : {"tp", "cp", "dp", "pp", "tp-dp-cp", "ep", "expert-tp", "expert-dp"}) {
    EXPECT_EQ(grid.groups(axes), (Groups{{0}})) << axes;
  }
}

TEST(RankGrid, EveryRankIsInExactlyOneGroupOfEachAxis) {
  const RankGrid grid(24, {.tp = 2, .cp = 3, .pp = 2, .ep = 4, .expert_tp = 1});
  for (const char* axes :
       {"tp", "cp", "dp", "pp", "tp-cp", "dp-cp", "tp-dp-cp", "ep", "expert-tp", "expert-dp"}) {
    std::vector<int> seen(24, 0);
    for (const std::vector<int>& group : grid.groups(axes)) {
      EXPECT_TRUE(std::ranges::is_sorted(group)) << axes;
      for (const int rank : group) ++seen[static_cast<std::size_t>(rank)];
    }
    EXPECT_THAT(seen, ::testing::Each(1)) << axes;
  }
}

std::string refusal(int world, const ParallelSizes& sizes) {
  try {
    const RankGrid grid(world, sizes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return {};
}

TEST(RankGrid, SizesMustDivideTheWorld) {
  EXPECT_EQ(refusal(6, {.tp = 4}), "6 ranks cannot be divided into tp 4 x cp 1 x pp 1");
  EXPECT_EQ(refusal(8, {.tp = 2, .cp = 2, .pp = 4}), "8 ranks cannot be divided into tp 2 x cp 2 x pp 4");
  EXPECT_EQ(refusal(8, {.tp = 2, .ep = 3}), "8 ranks cannot be divided into expert_tp 1 x ep 3 x pp 1");
  EXPECT_EQ(refusal(4, {.tp = 8}), "4 ranks cannot be divided into tp 8 x cp 1 x pp 1");
  EXPECT_THAT(refusal(4, {.tp = 65536, .cp = 65536}), HasSubstr("cannot be divided"))
      << "the product is 2^32";
  EXPECT_EQ(refusal(4, {.tp = 0}), "tp is 0; a parallel size is at least 1");
  EXPECT_EQ(refusal(4, {.cp = -2}), "cp is -2; a parallel size is at least 1");
  EXPECT_EQ(refusal(4, {.ep = 0}), "ep is 0; a parallel size is at least 1");
  EXPECT_THAT(refusal(0, {}), HasSubstr("at least 1"));
}

TEST(RankGrid, UnknownAxesAndRanksAreRefused) {
  const RankGrid grid(8, {.tp = 2});
  const auto text = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return {};
  };
  for (const char* axes : {"", "tpp", "tp-", "-tp", "tp--dp", "tp-ep", "expert", "expert-"}) {
    EXPECT_NE(text([&] { static_cast<void>(grid.groups(axes)); }), "") << axes;
    EXPECT_NE(text([&] { static_cast<void>(grid.coordinate(0, axes)); }), "") << axes;
  }
  EXPECT_THAT(text([&] { static_cast<void>(grid.groups("tp-ep")); }),
              AllOf(HasSubstr("unknown axis \"tp\" in \"tp-ep\""), HasSubstr("expert-dp")));
  EXPECT_THAT(text([&] { static_cast<void>(grid.coordinate(8, "tp")); }), HasSubstr("rank 8"));
  EXPECT_THAT(text([&] { static_cast<void>(grid.coordinate(-1, "tp")); }), HasSubstr("rank -1"));
  EXPECT_THAT(text([&] { static_cast<void>(grid.coordinate(0, "cp-dp-pp-x")); }), HasSubstr("unknown axis"));
  EXPECT_NE(text([&] { static_cast<void>(grid.coordinate(0, "tp-cp")); }), "");
}

}  // namespace
}  // namespace amaxscope::testing

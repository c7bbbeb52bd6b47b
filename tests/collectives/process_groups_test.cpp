// Groups as they are made, on every backend. The arithmetic itself is in rank_grid_test.cpp.
#include "collectives/process_groups.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;
using Ranks = std::vector<int>;

class Groups : public BackendTest {};
class GroupsOfEight : public BackendTest {};

TEST_P(Groups, EachRankIsInTheGroupsOfTheGrid) {
  // As many axes as the ranks allow: tp first, then dp.
  const int tp = ranks() == 1 ? 1 : 2;
  on_ranks([&](Communicator& world) {
    const ProcessGroups groups(world, {.tp = tp});
    EXPECT_EQ(&groups.world(), &world);
    for (const char* axes :
         {"tp", "cp", "dp", "pp", "tp-cp", "dp-cp", "tp-dp-cp", "ep", "expert-tp", "expert-dp"}) {
      const Communicator& group = groups.group(axes);
      EXPECT_THAT(groups.grid().groups(axes), ::testing::Contains(group.world_ranks())) << axes;
      EXPECT_EQ(group.world_ranks()[static_cast<std::size_t>(group.rank())], world.rank()) << axes;
    }
    EXPECT_EQ(&groups.tp(), &groups.group("tp"));
    EXPECT_EQ(&groups.dp(), &groups.group("dp"));
    EXPECT_EQ(&groups.cp(), &groups.group("cp"));
    EXPECT_EQ(&groups.pp(), &groups.group("pp"));
    EXPECT_EQ(&groups.dp_cp(), &groups.group("dp-cp"));
    EXPECT_EQ(&groups.tp_dp_cp(), &groups.group("tp-dp-cp"));
    EXPECT_EQ(world.counters().calls(Traffic::kTrainer) + world.counters().calls(Traffic::kDebug), 0U);
  });
}

TEST_P(GroupsOfEight, ByHand) {
  on_ranks([](Communicator& world) {
    const ProcessGroups groups(world, {.tp = 2, .cp = 1, .pp = 2, .ep = 2, .expert_tp = 2});
    const int rank = world.rank();
    const int pair = rank / 2 * 2;
    const int stage = rank / 4 * 4;
    EXPECT_EQ(groups.tp().world_ranks(), (Ranks{pair, pair + 1}));
    EXPECT_EQ(groups.dp().world_ranks(), (Ranks{stage + rank % 2, stage + 2 + rank % 2}));
    EXPECT_EQ(groups.pp().world_ranks(), (Ranks{rank % 4, 4 + rank % 4}));
    EXPECT_EQ(groups.cp().world_ranks(), (Ranks{rank}));
    EXPECT_EQ(groups.tp_dp_cp().world_ranks(), (Ranks{stage, stage + 1, stage + 2, stage + 3}));
    EXPECT_EQ(groups.group("ep").world_ranks(), (Ranks{stage + rank % 2, stage + 2 + rank % 2}));
    EXPECT_EQ(groups.group("expert-dp").world_ranks(), (Ranks{rank}));
    // Different numbers of collectives in the groups of one axis, interleaved with another axis.
    for (int i = 0; i <= rank / 2; ++i) {
      Tensor io = Tensor::of<std::int32_t>({rank}, {1});
      groups.tp().all_reduce(io, ReduceOp::kSum, kTestTag);
      EXPECT_EQ(io.values<std::int32_t>()[0], 2 * pair + 1);
    }
    Tensor io = Tensor::of<std::int32_t>({rank}, {1});
    groups.pp().all_reduce(io, ReduceOp::kSum, kTestTag);
    EXPECT_EQ(io.values<std::int32_t>()[0], 2 * (rank % 4) + 4);
  });
}

TEST_P(Groups, SizesThatDoNotFitAreRefusedBeforeAnythingIsSent) {
  on_ranks([&](Communicator& world) {
    try {
      const ProcessGroups groups(world, {.tp = 3});
      ADD_FAILURE() << "tp 3 accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("{} ranks cannot be divided into tp 3", world.size())));
    }
    const ProcessGroups groups(world, {});
    try {
      static_cast<void>(groups.group("dp-tp"));
      ADD_FAILURE() << "an unknown group was found";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("no process group \"dp-tp\"; there are tp, cp, dp"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Groups, ::testing::ValuesIn(backends()), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupsOfEight);
INSTANTIATE_TEST_SUITE_P(Backends, GroupsOfEight,
                         ::testing::ValuesIn(backends_with([](const Backend& backend) {
                           return backend.ranks == 8;
                         })),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing

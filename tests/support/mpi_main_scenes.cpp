// Tests that are to pass, fail and be skipped on some ranks only: tests/support/CMakeLists.txt runs them one
// by one and checks what the program makes of it. Not a suite of its own.
#include <set>

#include "collectives/exchange.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {
namespace {

constexpr CollectiveTag kTag = {.what = "scene"};

class Scene : public MpiTest {
 protected:
  [[nodiscard]] bool last() const { return world().rank() == world().size() - 1; }
};

TEST_F(Scene, Passes) { EXPECT_EQ(world().size(), 2); }
TEST_F(Scene, FailsOnTheLastRank) { EXPECT_FALSE(last()) << "as planned"; }
TEST_F(Scene, ThrowsOnTheLastRank) {
  if (last()) throw std::runtime_error("as planned");
}
TEST_F(Scene, LeavesTheOthersInACollective) {
  ASSERT_FALSE(last()) << "before the barrier";
  world().barrier(kTag);
}
TEST_F(Scene, SkipsEverywhere) { GTEST_SKIP() << "as planned"; }
TEST_F(Scene, SkipsOnRankZero) {
  if (world().rank() == 0) GTEST_SKIP() << "as planned";
}

/// Shuffled ranks are in the same test at the same time.
class Shuffled : public MpiTest, public ::testing::WithParamInterface<int> {};
TEST_P(Shuffled, SameTestOnEveryRank) {
  const std::string own = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::vector<std::string> all = all_gather_text(world(), own, kTag);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 1U);
}
INSTANTIATE_TEST_SUITE_P(Many, Shuffled, ::testing::Range(0, 20));

}  // namespace
}  // namespace amaxscope::testing

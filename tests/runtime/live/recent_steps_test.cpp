// The statistics of the last steps.
#include "runtime/live/recent_steps.hpp"

#include <gtest/gtest.h>

namespace amaxscope {
namespace {

std::vector<StatRecord> record_at(std::int64_t iteration) {
  StatRecord record;
  record.iteration = iteration;
  return {record};
}

TEST(RecentSteps, KeepsTheLastOldestFirst) {
  RecentSteps recent(2);
  for (const std::int64_t iteration : {3, 6, 9}) recent.add(iteration, record_at(iteration));
  recent.add(10, {});
  ASSERT_EQ(recent.kept().size(), 2U);
  EXPECT_EQ(recent.kept()[0].iteration, 6);
  EXPECT_EQ(recent.kept()[1].records.at(0).iteration, 9);
}

TEST(RecentSteps, RoomForNoneKeepsNone) {
  RecentSteps recent(0);
  recent.add(1, record_at(1));
  EXPECT_TRUE(recent.kept().empty());
}

}  // namespace
}  // namespace amaxscope

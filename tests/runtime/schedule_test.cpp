#include "runtime/schedule/schedule.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::vector<std::int64_t> due_until(const Schedule& schedule, std::int64_t last) {
  std::vector<std::int64_t> due;
  for (std::int64_t i = 0; i <= last; ++i) {
    if (schedule.due(i)) due.push_back(i);
  }
  return due;
}

std::string refused(std::int64_t freq, std::vector<IterationInterval> intervals) {
  try {
    const Schedule schedule(freq, std::move(intervals));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(Schedule, EveryIterationByDefault) {
  const Schedule schedule;
  EXPECT_THAT(due_until(schedule, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(schedule.next_due(kMax), kMax);
  EXPECT_EQ(schedule.text(), "freq=1 [0,)");
}

TEST(Schedule, FreqCountsFromZeroAndNotFromTheStart) {
  EXPECT_THAT(due_until(Schedule(10, {{5, std::nullopt}}), 35), ElementsAre(10, 20, 30));
  EXPECT_THAT(due_until(Schedule(10, {{10, 20}}), 35), ElementsAre(10, 20));
}

TEST(Schedule, BothEndsOfAnIntervalAreIncluded) {
  EXPECT_THAT(due_until(Schedule(1, {{0, 2}, {10, 11}}), 20), ElementsAre(0, 1, 2, 10, 11));
  EXPECT_THAT(due_until(Schedule(2, {{0, 3}, {9, 12}}), 20), ElementsAre(0, 2, 10, 12));
}

TEST(Schedule, IntervalsMayBeGivenInAnyOrder) {
  EXPECT_EQ(Schedule(1, {{10, 11}, {0, 2}}), Schedule(1, {{0, 2}, {10, 11}}));
}

TEST(Schedule, NextDueSkipsGapsAndIntervalsWithoutAMultiple) {
  const Schedule schedule(10, {{1, 9}, {25, 31}, {100, std::nullopt}});
  EXPECT_EQ(schedule.next_due(0), 30);
  EXPECT_EQ(schedule.next_due(30), 30);
  EXPECT_EQ(schedule.next_due(31), 100);
  EXPECT_EQ(schedule.next_due(101), 110);
  EXPECT_EQ(Schedule(1, {{0, 2}}).next_due(3), std::nullopt);
  EXPECT_EQ(Schedule(7, {{0, 2}}).next_due(1), std::nullopt);
  EXPECT_EQ(schedule.next_due(-5), 30);
  EXPECT_FALSE(Schedule().due(-1));
}

TEST(Schedule, NoOverflowAtTheEndOfTime) {
  EXPECT_EQ(Schedule(10, {{0, std::nullopt}}).next_due(kMax), std::nullopt);  // kMax ends in 7
  EXPECT_EQ(Schedule(kMax, {{1, std::nullopt}}).next_due(2), kMax);
}

TEST(Schedule, NextDueAgreesWithDueEverywhere) {
  for (std::int64_t freq = 1; freq <= 6; ++freq) {
    for (std::int64_t start = 0; start <= 8; ++start) {
      for (std::int64_t end = start; end <= 12; ++end) {
        const Schedule schedule(freq, {{start, end}, {14, std::nullopt}});
        std::optional<std::int64_t> next;
        for (std::int64_t i = 40; i >= 0; --i) {
          const bool due = i % freq == 0 && ((start <= i && i <= end) || i >= 14);
          ASSERT_EQ(schedule.due(i), due) << schedule.text() << " at " << i;
          if (due) next = i;
          if (next) {
            ASSERT_EQ(schedule.next_due(i), next) << schedule.text() << " from " << i;
          }
        }
      }
    }
  }
}

TEST(Schedule, TextIsEqualExactlyWhenSchedulesAre) {
  EXPECT_EQ(Schedule(10, {{0, 100}, {200, std::nullopt}}).text(), "freq=10 [0,100] [200,)");
  const std::vector<Schedule> schedules = {Schedule(), Schedule(2, {{0, std::nullopt}}),
                                           Schedule(1, {{0, 5}}), Schedule(1, {{0, 5}, {7, 9}}),
                                           Schedule(1, {{5, std::nullopt}})};
  for (const Schedule& a : schedules) {
    for (const Schedule& b : schedules) EXPECT_EQ(a.text() == b.text(), a == b);
  }
}

TEST(Schedule, RefusesWhatIsNoSchedule) {
  EXPECT_EQ(refused(0, {{0, 5}}), "schedule: freq is 0, it must be 1 or more");
  EXPECT_EQ(refused(-3, {{0, 5}}), "schedule: freq is -3, it must be 1 or more");
  EXPECT_EQ(refused(1, {{6, 5}}), "schedule: interval [6,5] ends before it starts");
  EXPECT_EQ(refused(1, {{-1, 5}}), "schedule: interval [-1,5] starts before iteration 0");
  EXPECT_EQ(refused(1, {{0, 5}, {5, 9}}), "schedule: intervals [0,5] and [5,9] overlap");
  EXPECT_EQ(refused(1, {{0, std::nullopt}, {5, 9}}), "schedule: intervals [0,) and [5,9] overlap");
}

}  // namespace
}  // namespace amaxscope

#include "report/series.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace amaxscope::report {
namespace {

TEST(Series, KeepsTheJumpWhenItThinsOut) {
  Series series(16);
  for (int i = 0; i < 10000; ++i) series.add(i, i == 4321 ? 50.0 : 1.0);
  ASSERT_LT(series.points().size(), 16U);
  ASSERT_GE(series.points().size(), 7U);
  int jumps = 0;
  for (const Point& point : series.points()) {
    if (point.value == 50.0) {
      EXPECT_EQ(point.iteration, 4321);
      ++jumps;
    }
  }
  EXPECT_EQ(jumps, 1);
}

TEST(Series, LeavesOutWhatDoesNotGoForward) {
  Series series;
  series.add(5, 1);
  series.add(5, 2);
  series.add(3, 3);
  series.add(6, 4);
  ASSERT_EQ(series.points().size(), 2U);
  EXPECT_EQ(series.points()[1].value, 4);
}

TEST(Series, MedianIsOfWhatIsFinite) {
  const std::vector<Point> points = {{0, 3}, {1, std::numeric_limits<double>::quiet_NaN()}, {2, 1}, {3, 2}};
  EXPECT_EQ(median(points), 2);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Series, ARunHasToBeLongInPointsAndInIterations) {
  const std::vector<Point> points = {{0, 9}, {5, 0}, {10, 9}, {15, 9}, {20, 9}, {25, 0}};
  const Point* found = first_run_above(points, 1, 3, 10);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->iteration, 10);
  EXPECT_EQ(first_run_above(points, 1, 3, 11), nullptr);
  EXPECT_EQ(first_run_above(points, 1, 4, 0), nullptr);
  EXPECT_EQ(first_run_above(points, 9, 1, 0), nullptr);
}

}  // namespace
}  // namespace amaxscope::report

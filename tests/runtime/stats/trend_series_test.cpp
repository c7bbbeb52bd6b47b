#include "runtime/stats/trend_series.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"

namespace amaxscope {
namespace {

TrendSeries series_of(const std::vector<double>& levels, std::size_t window = 16, std::int64_t every = 1) {
  TrendSeries series(window);
  std::int64_t iteration = 0;
  for (const double level : levels) {
    series.add(iteration, level);
    iteration += every;
  }
  return series;
}

TEST(TrendSeries, SlopeIsBitsAnIterationWhateverTheSpacing) {
  EXPECT_EQ(series_of({1, 1.5, 2, 2.5}).slope(), 0.5);
  EXPECT_EQ(series_of({1, 1.5, 2, 2.5}, 16, 10).slope(), 0.05);
  EXPECT_EQ(series_of({3, 2, 1}).slope(), -1.0);
  TrendSeries uneven(16);
  for (const std::int64_t iteration : {0, 1, 7, 20})
    uneven.add(iteration, 0.25 * static_cast<double>(iteration));
  EXPECT_EQ(uneven.slope(), 0.25);
}

TEST(TrendSeries, ASpikeDoesNotMoveTheSlope) { EXPECT_EQ(series_of({1, 2, 3, 40, 5, 6, 7}).slope(), 1.0); }

TEST(TrendSeries, SlopeOfPairsByHand) {
  // Pairs: 4, 1, 1.67, -2, 0.5, 3. Sorted -2 0.5 1 1.67 3 4: median 1.33.
  EXPECT_DOUBLE_EQ(*series_of({0, 4, 2, 5}).slope(), (1.0 + 5.0 / 3) / 2);
}

TEST(TrendSeries, FewPointsSayLittle) {
  EXPECT_FALSE(series_of({1, 2}).slope().has_value());
  EXPECT_TRUE(series_of({1, 2, 3}).slope().has_value());
  EXPECT_FALSE(series_of({1, 2, 9}).jump().has_value());
  EXPECT_EQ(series_of({1, 2, 2, 9}).jump(), 7.0);
  EXPECT_EQ(series_of({}).reversals(), 0);
  EXPECT_FALSE(series_of({1, 2, 3}).change_point().has_value());
}

TEST(TrendSeries, OnlyTheWindowCounts) {
  const TrendSeries series = series_of({50, -50, 50, 1, 2, 3, 4}, 4);
  EXPECT_EQ(series.points(), 4U);
  EXPECT_EQ(series.span(), 3);
  EXPECT_EQ(series.slope(), 1.0);
  EXPECT_EQ(series.jump(), 2.0);
  EXPECT_EQ(series.reversals(), 0);
}

TEST(TrendSeries, ReversalsAreTurnsOfAFactorOfTwo) {
  EXPECT_EQ(series_of({0, 2, 0, 2, 0}).reversals(), 3);
  EXPECT_EQ(series_of({0, 0.9, 0, 0.9, 0}).reversals(), 0) << "less than a factor of two";
  EXPECT_EQ(series_of({0, 0.5, 1, 1.5, 1, 0.5, 0}).reversals(), 1) << "slowly, but all the way";
  EXPECT_EQ(series_of({0, 1, 2, 3, 4}).reversals(), 0);
  EXPECT_EQ(series_of({5, 4, 3, 4.5, 2}).reversals(), 2);
}

TEST(TrendSeries, ALevelThatMovesUpHasItsFirstIteration) {
  std::vector<double> levels(12, 3.0);
  for (int i = 0; i < 4; ++i) levels.push_back(7.0);  // four bits up from iteration 12 on
  EXPECT_EQ(series_of(levels).change_point(), 12);
  EXPECT_EQ(series_of(levels, 4, 10).change_point(), 120);
  EXPECT_EQ(series_of(levels).shift(), 4.0);
}

TEST(TrendSeries, DownwardsAndSmallMovesTakeLonger) {
  std::vector<double> levels(9, 0.0);
  for (int i = 0; i < 7; ++i) levels.push_back(-1.0);  // half a bit a point counts: 8 of them reach 4
  EXPECT_FALSE(series_of(levels).change_point().has_value());
  levels.push_back(-1.0);
  EXPECT_EQ(series_of(levels).change_point(), 9);
  EXPECT_EQ(series_of(levels).shift(), -1.0);
}

TEST(TrendSeries, SpikesAndNoiseAreNoNewLevel) {
  std::vector<double> levels;
  for (int i = 0; i < 60; ++i) levels.push_back(i % 10 == 9 ? 20.0 : 0.4 * std::sin(i));
  EXPECT_FALSE(series_of(levels).change_point().has_value());
}

TEST(TrendSeries, AfterAChangeTheReferenceIsLearntAnew) {
  std::vector<double> levels(8, 0.0);
  levels.insert(levels.end(), 12, 6.0);  // detected at its second point, the reference then learnt of eight
  levels.insert(levels.end(), 3, 1.0);   // down by five at iteration 20
  const TrendSeries series = series_of(levels);
  EXPECT_EQ(series.change_point(), 20);
  EXPECT_EQ(series.shift(), -5.0);
}

TEST(TrendSeries, GoesOnAfterARestartAsIfItHadNot) {
  const auto level = [](std::int64_t i) {
    return (i < 30 ? 1.0 : 6.0) + 0.25 * static_cast<double>(i * 7 % 5);
  };
  for (const std::int64_t stop : {0, 1, 5, 12, 31, 34, 50}) {
    TrendSeries whole(8);
    TrendSeries before(8);
    for (std::int64_t i = 0; i < stop; ++i) {
      whole.add(i, level(i));
      before.add(i, level(i));
    }
    TrendSeries after(8);
    after.restore(before.saved());
    for (std::int64_t i = stop; i < 60; ++i) {
      whole.add(i, level(i));
      after.add(i, level(i));
      ASSERT_EQ(after.slope(), whole.slope()) << stop << " " << i;
      ASSERT_EQ(after.jump(), whole.jump());
      ASSERT_EQ(after.reversals(), whole.reversals());
      ASSERT_EQ(after.change_point(), whole.change_point());
      ASSERT_EQ(after.shift(), whole.shift());
    }
    EXPECT_TRUE(whole.change_point().has_value());
  }
}

TEST(TrendSeries, RefusesNumbersThatNoIterationOrCountIs) {
  TrendSeries series(8);
  for (int i = 0; i < 12; ++i) series.add(i, i);
  const std::vector<double> sound = series.saved();
  for (const std::size_t at : {0U, 1U, 4U, 6U, 15U, 17U}) {  // counts, iterations of a sum, of points
    for (const double number : {-1.0, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
      std::vector<double> wrong = sound;
      wrong.at(at) = number;
      EXPECT_THROW(TrendSeries(8).restore(wrong), Error) << at << " " << number;
    }
  }
  std::vector<double> wrong = sound;
  wrong.at(17) = wrong.at(15);  // two points of one iteration
  EXPECT_THROW(TrendSeries(8).restore(wrong), Error);
}

TEST(TrendSeries, RefusesWhatItDidNotSave) {
  TrendSeries series(8);
  series.add(0, 1.0);
  std::vector<double> words = series.saved();
  words.pop_back();
  EXPECT_THROW(TrendSeries(8).restore(words), Error);
  EXPECT_THROW(TrendSeries(8).restore(std::vector<double>{-1, 0}), Error);
}

}  // namespace
}  // namespace amaxscope

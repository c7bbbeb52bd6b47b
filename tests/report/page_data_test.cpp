// What the page keeps of the records: extremes, all ranks and stages, the model's order, bounded memory.
#include "report/page/page_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Range {
  std::int64_t index;
  float low;
  float high;
  friend bool operator==(const Range&, const Range&) = default;
};

std::vector<Range> ranges(const BucketSeries& series) {
  std::vector<Range> list;
  for (const Bucket& bucket : series.buckets()) list.push_back({bucket.index, bucket.low, bucket.high});
  return list;
}

RecordLine line(std::int64_t iteration, const std::string& layer, std::map<std::string, double> stats,
                std::int64_t rank = 0) {
  RecordLine record;
  record.iteration = iteration;
  record.layer = layer;
  record.tensor = "activation";
  record.phase = "forward";
  record.recipe = "delayed";
  record.format = "E4M3";
  record.stats = std::move(stats);
  record.rank = rank;
  record.group = {rank};
  return record;
}

const PageData::Values& values(const PageData& data, std::uint32_t layer, std::uint32_t stat) {
  return data.series().at({layer, 0, stat});
}

TEST(BucketSeries, AFewValuesStayAsTheyAre) {
  BucketSeries series;
  for (const int iteration : {0, 5, 10}) series.add(iteration, iteration * 1.5);
  series.fit(10);
  EXPECT_EQ(series.shift(), 0);
  EXPECT_THAT(ranges(series), ElementsAre(Range{0, 0, 0}, Range{5, 7.5, 7.5}, Range{10, 15, 15}));
}

TEST(BucketSeries, AHundredThousandIterationsKeepTheOneSpikeAndTheOneDip) {
  BucketSeries series;
  for (int iteration = 0; iteration < 100'000; ++iteration) {
    series.add(iteration, iteration == 54'321 ? 1e6 : iteration == 77'777 ? -1e6 : std::sin(iteration));
    series.fit(512);
  }
  EXPECT_LE(series.buckets().size(), 512U);
  ASSERT_EQ(series.shift(), 8);  // 100000 / 2^8 = 391 buckets, 2^7 would be 782
  EXPECT_EQ(series.buckets().size(), 391U);
  for (const Bucket& bucket : series.buckets()) {
    EXPECT_EQ(bucket.high > 1, bucket.index == 54'321 / 256) << bucket.index;
    EXPECT_EQ(bucket.low < -1, bucket.index == 77'777 / 256) << bucket.index;
  }
}

TEST(BucketSeries, OneNaNIsNotLostAmongNumbersAndInfinityIsTheLargest) {
  BucketSeries series;
  series.add(0, 1);
  series.add(1, std::numeric_limits<double>::quiet_NaN());
  series.add(2, 3);
  series.add(8, std::numeric_limits<double>::quiet_NaN());
  series.add(16, std::numeric_limits<double>::infinity());
  series.widen(3);
  ASSERT_EQ(series.buckets().size(), 3U);
  EXPECT_EQ(series.buckets()[0].low, 1);
  EXPECT_TRUE(std::isnan(series.buckets()[0].high));
  EXPECT_TRUE(std::isnan(series.buckets()[1].low));
  EXPECT_EQ(series.buckets()[2].high, kInfinity);
}

TEST(BucketSeries, WhatDoesNotFitAFloatIsNeitherZeroNorInfinite) {
  BucketSeries series;
  series.add(0, 1e-300);
  series.add(1, -1e300);
  EXPECT_GT(series.buckets()[0].low, 0);
  EXPECT_EQ(series.buckets()[1].low, -std::numeric_limits<float>::max());
}

TEST(BucketSeries, IterationsInAnyOrderAndNegativeOnes) {
  BucketSeries series;
  for (const int iteration : {7, -3, 2, 7}) series.add(iteration, iteration == 7 ? iteration : 1);
  series.add(7, 9);
  EXPECT_THAT(ranges(series), ElementsAre(Range{-3, 1, 1}, Range{2, 1, 1}, Range{7, 7, 9}));
  series.widen(2);
  EXPECT_THAT(ranges(series), ElementsAre(Range{-1, 1, 1}, Range{0, 1, 1}, Range{1, 7, 9}));
}

TEST(PageData, RanksOfOneLayerAreOneSeriesAndAlsoKnownApartWhereTheyDiffer) {
  PageData data;
  data.record(line(0, "a", {{"rms", 1}, {"same", 4}}, 0));
  data.record(line(1, "a", {{"rms", 2}, {"same", 4}}, 0));
  data.record(line(0, "a", {{"rms", 3}, {"same", 4}}, 1));
  data.record(line(1, "a", {{"rms", 2}, {"same", 4}}, 1));
  EXPECT_THAT(data.layers(), ElementsAre("a"));
  EXPECT_THAT(data.stats(), ElementsAre("rms", "same"));
  EXPECT_THAT(ranges(values(data, 0, 0).all()), ElementsAre(Range{0, 1, 3}, Range{1, 2, 2}));
  EXPECT_TRUE(values(data, 0, 0).differs());
  EXPECT_THAT(ranges(values(data, 0, 0).others.at(1)), ElementsAre(Range{0, 3, 3}, Range{1, 2, 2}));
  EXPECT_FALSE(values(data, 0, 1).differs());
}

TEST(PageData, MoreRanksThanThereIsRoomForStillCountInTheExtremes) {
  PageData data(PageLimits{.ranks_a_series = 2});
  for (int rank = 0; rank < 6; ++rank) data.record(line(0, "a", {{"rms", rank}}, rank));
  EXPECT_EQ(values(data, 0, 0).others.size(), 2U);
  EXPECT_THAT(ranges(values(data, 0, 0).all()), ElementsAre(Range{0, 0, 5}));
}

TEST(PageData, OtherPhasesAreTensorsOfTheirOwn) {
  PageData data;
  data.record(line(0, "a", {{"rms", 1}}));
  RecordLine evaluated = line(0, "a", {{"rms", 2}});
  evaluated.phase = "eval";
  data.record(evaluated);
  EXPECT_THAT(data.tensors(), ElementsAre("activation", "activation in eval"));
}

TEST(PageData, StagesComeInTheOrderOfTheModel) {
  const std::vector<std::string> names = {"decoder.layers.10.fc1", "decoder.layers.10.fc2",
                                          "output_layer",          "embedding.word",
                                          "decoder.layers.2.fc1",  "decoder.layers.2.fc2"};
  EXPECT_THAT(model_order(names), ElementsAre(3, 4, 5, 0, 1, 2));
}

TEST(PageData, AChangeOfTheFormatIsKeptWithItsIteration) {
  PageData data;
  for (int iteration = 0; iteration < 6; ++iteration) {
    RecordLine record = line(iteration, "a", {{"rms", 1}});
    if (iteration >= 4) record.format = "E5M2";
    data.record(record);
  }
  const auto& formats = data.formats().at({0, 0});
  ASSERT_EQ(formats.size(), 2U);
  EXPECT_EQ(formats[1].iteration, 4);
  EXPECT_EQ(formats[1].format, "E5M2");
}

TEST(PageData, TooMuchForItsRoomBecomesCoarserForAllAlikeAndLosesNoExtreme) {
  PageData data(PageLimits{.stat_buckets = 1000});
  for (int iteration = 0; iteration < 200; ++iteration) {
    for (int layer = 0; layer < 50; ++layer) {
      const bool spike = layer == 17 && iteration == 133;
      data.record(line(iteration, "layers." + std::to_string(layer), {{"rms", spike ? 99 : 1}}));
    }
  }
  EXPECT_LE(data.buckets(), 1000U);
  for (const auto& [key, series] : data.series()) {
    EXPECT_EQ(series.all().shift(), 4);  // 50 times 200 / 16 = 13 are 650; 200 / 8 would be 1250
    for (const Bucket& bucket : series.all().buckets())
      EXPECT_EQ(bucket.high == 99, key.layer == 17 && bucket.index == 133 / 16);
  }
}

TEST(PageData, NamesWithoutEndAreCountedAndLeftOut) {
  PageData data(PageLimits{.names = 3, .series = 5});
  for (int i = 0; i < 10; ++i) data.record(line(0, "layer" + std::to_string(i), {{"rms", 1}, {"std", 1}}));
  data.record(line(0, "layer0", {{std::string(10'000, 'x'), 1}}));
  EXPECT_EQ(data.layers().size(), 3U);
  EXPECT_EQ(data.series().size(), 5U);
  EXPECT_EQ(data.left_out(), 7U * 2 + 1 + 1);
}

}  // namespace
}  // namespace amaxscope::report

// How ranks tell each other of events.
#include "runtime/live/event_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Event event_of(const std::string& layer, std::vector<int> ranks) {
  return {.kind = "trigger",
          .iteration = 7,
          .action = EventAction::kDump,
          .feature = "Guard of section nan",
          .check = "I3",
          .layer = layer,
          .tensor = "weight",
          .ranks = std::move(ranks),
          .what = "copies differ"};
}

TEST(EventText, WhatIsPackedIsUnpackedWhateverTheNames) {
  const Event odd = event_of("a \"b\"\n\tz\x01 \xC3\xA4", {3});
  const std::vector<std::string> texts = {"", pack_events(std::vector{odd}, 1000)};
  EXPECT_EQ(texts[1].find('\0'), std::string::npos);
  EXPECT_THAT(merge_events(texts), ElementsAre(odd));
  EXPECT_EQ(pack_events({}, 1000), "");
}

TEST(EventText, TheSameThingOnSeveralRanksIsOneEvent) {
  Event stops = event_of("fc1", {2});
  stops.action = EventAction::kStop;
  stops.what = "said differently";
  const std::vector<std::string> texts = {
      pack_events(std::vector{event_of("fc2", {0, 1}), event_of("fc1", {5})}, 1000), "",
      pack_events(std::vector{stops, event_of("fc2", {1})}, 1000)};
  const std::vector<Event> merged = merge_events(texts);
  ASSERT_THAT(merged, SizeIs(2));
  EXPECT_EQ(merged[0].layer, "fc2");
  EXPECT_THAT(merged[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(merged[1].layer, "fc1");
  EXPECT_THAT(merged[1].ranks, ElementsAre(2, 5));
  EXPECT_EQ(merged[1].action, EventAction::kStop) << "the heaviest";
  EXPECT_EQ(merged[1].what, "copies differ") << "the first";
}

TEST(EventText, WhatDoesNotFitIsCounted) {
  std::vector<Event> many;
  for (int i = 0; i < 50; ++i) many.push_back(event_of("layer " + std::to_string(i), {0}));
  const std::string text = pack_events(many, 1000);
  EXPECT_LE(text.size(), 1000U);
  const std::vector<Event> read = merge_events(std::vector{text});
  ASSERT_FALSE(read.empty());
  EXPECT_LT(read.size(), 50U);
  EXPECT_THAT(read.back().what, HasSubstr("and " + std::to_string(50 - read.size()) + " more events"));
  EXPECT_EQ(read.front().what, "copies differ");

  Event wordy = event_of("fc1", {0});
  wordy.what = std::string(5000, 'x');
  const std::vector<Event> cut = merge_events(std::vector{pack_events(std::vector{wordy}, 1000)});
  ASSERT_THAT(cut, SizeIs(1));
  EXPECT_EQ(cut[0].layer, "fc1");
  EXPECT_LT(cut[0].what.size(), 1000U);
}

TEST(EventText, AForeignTextIsAnError) {
  EXPECT_THROW(static_cast<void>(merge_events(std::vector<std::string>{"[[1]]"})), Error);
  EXPECT_THROW(static_cast<void>(merge_events(std::vector<std::string>{"{"})), Error);
}

TEST(EventText, ASentenceNamesEverything) {
  Event signal;
  signal.iteration = 2;
  signal.check = "SIGUSR1";
  signal.ranks = {1};
  signal.what = "asked for";
  EXPECT_EQ(sentence(event_of("fc1", {0, 3})),
            "Guard of section nan: I3 at iteration 7, weight of fc1, ranks 0,3: copies differ");
  EXPECT_EQ(sentence(signal), "SIGUSR1 at iteration 2, rank 1: asked for");
}

TEST(EventAction, WordsReadBack) {
  for (const EventAction action :
       {EventAction::kNone, EventAction::kRecord, EventAction::kDump, EventAction::kStop}) {
    EXPECT_EQ(parse_event_action(to_string(action)), action);
  }
  EXPECT_EQ(parse_event_action("explode"), std::nullopt);
}

}  // namespace
}  // namespace amaxscope

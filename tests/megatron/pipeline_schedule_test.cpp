// The order of a stage's work: complete, without deadlock even when every send waits for its receive, and
// ahead by no more than it must.
#include "megatron/pipeline.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

namespace amaxscope::megatron {
namespace {

using Kind = PipelineWork::Kind;

std::vector<std::vector<PipelineWork>> all_stages(int stages, int micro_batches) {
  std::vector<std::vector<PipelineWork>> result;
  for (int index = 0; index < stages; ++index)
    result.push_back(pipeline_schedule({index, stages}, micro_batches));
  return result;
}

/// Runs the stages as ranks whose sends and receives complete together. Empty, or what is left over.
std::string stuck(const std::vector<std::vector<PipelineWork>>& stages) {
  std::vector<std::size_t> next(stages.size(), 0);
  const auto now = [&](std::size_t stage) -> const PipelineWork* {
    return next[stage] < stages[stage].size() ? &stages[stage][next[stage]] : nullptr;
  };
  const auto meet = [&](std::size_t from, std::size_t to, Kind send, Kind receive) {
    const PipelineWork* const sent = now(from);
    const PipelineWork* const wanted = now(to);
    if (sent == nullptr || wanted == nullptr || sent->kind != send || wanted->kind != receive) return false;
    EXPECT_EQ(sent->microbatch, wanted->microbatch) << "stage " << from << " to " << to;
    ++next[from];
    ++next[to];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      while (now(stage) != nullptr &&
             (now(stage)->kind == Kind::kForward || now(stage)->kind == Kind::kBackward)) {
        ++next[stage];
        moved = true;
      }
      if (stage + 1 == stages.size()) continue;
      moved = meet(stage, stage + 1, Kind::kSendForward, Kind::kReceiveForward) || moved;
      moved = meet(stage + 1, stage, Kind::kSendBackward, Kind::kReceiveBackward) || moved;
    }
  }
  std::string left;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    if (now(stage) != nullptr) left += " " + std::to_string(stage);
  }
  return left;
}

TEST(PipelineSchedule, NoStageWaitsForEver) {
  for (int stages = 1; stages <= 9; ++stages) {
    for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      EXPECT_EQ(stuck(all_stages(stages, micro_batches)), "")
          << stages << " stages, " << micro_batches << " micro-batches";
    }
  }
}

TEST(PipelineSchedule, EveryMicroBatchGoesThroughEveryStageOnce) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int micro_batches = 1; micro_batches <= 7; ++micro_batches) {
      for (int index = 0; index < stages; ++index) {
        const PipelineStage stage{index, stages};
        const std::vector<PipelineWork> work = pipeline_schedule(stage, micro_batches);
        const auto of = [&](Kind kind) {
          std::vector<int> result;
          for (const PipelineWork& one : work) {
            if (one.kind == kind) result.push_back(one.microbatch);
          }
          return result;
        };
        std::vector<int> all;
        for (int i = 0; i < micro_batches; ++i) all.push_back(i);
        const std::vector<int> none;
        EXPECT_EQ(of(Kind::kForward), all);
        EXPECT_EQ(of(Kind::kBackward), all) << "gradients are summed in the order of one stage";
        EXPECT_EQ(of(Kind::kReceiveForward), index == 0 ? none : all);
        EXPECT_EQ(of(Kind::kSendBackward), index == 0 ? none : all);
        EXPECT_EQ(of(Kind::kSendForward), index == stages - 1 ? none : all);
        EXPECT_EQ(of(Kind::kReceiveBackward), index == stages - 1 ? none : all);

        int in_flight = 0;
        int most = 0;
        for (const PipelineWork& one : work) {
          if (one.kind == Kind::kForward) most = std::max(most, ++in_flight);
          if (one.kind == Kind::kBackward) --in_flight;
        }
        EXPECT_EQ(in_flight, 0);
        EXPECT_EQ(most_in_flight(stage, micro_batches), most);
        EXPECT_LE(most, stages - index) << "1F1B keeps no more than the stages from here on";
      }
    }
  }
}

TEST(PipelineSchedule, OneStageAlternates) {
  EXPECT_THAT(pipeline_schedule({}, 2),
              ::testing::ElementsAre(PipelineWork{Kind::kForward, 0}, PipelineWork{Kind::kBackward, 0},
                                     PipelineWork{Kind::kForward, 1}, PipelineWork{Kind::kBackward, 1}));
}

TEST(PipelineSchedule, TheFirstOfTwoStagesIsOneAhead) {
  EXPECT_THAT(
      pipeline_schedule({0, 2}, 2),
      ::testing::ElementsAre(PipelineWork{Kind::kForward, 0}, PipelineWork{Kind::kSendForward, 0},
                             PipelineWork{Kind::kForward, 1}, PipelineWork{Kind::kReceiveBackward, 0},
                             PipelineWork{Kind::kSendForward, 1}, PipelineWork{Kind::kBackward, 0},
                             PipelineWork{Kind::kReceiveBackward, 1}, PipelineWork{Kind::kBackward, 1}));
}

}  // namespace
}  // namespace amaxscope::megatron

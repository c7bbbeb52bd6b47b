// A debug session on a training in pipeline stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "collectives/loopback_communicator.hpp"
#include "collectives/process_groups.hpp"
#include "features/presets.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::random_batch;
using testing::session_options;

TrainerOptions options() {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.layers = 4;
  options.model.recompute = true;
  options.recipe = RecipeKind::kDelayed;
  options.sequence_parallel = true;
  options.arithmetic = GemmArithmetic::kExact;
  options.micro_batches = 3;
  options.clip_norm = 0.05;
  options.learning_rate = {.peak = 3e-3};
  return options;
}

/// What all ranks together reported.
struct Reported {
  /// "iteration layer tensor phase part" -> its numbers, once for each time it was recorded.
  std::multimap<std::string, std::vector<std::pair<std::string, double>>> records;
  std::vector<std::string> findings;                     ///< "check layer tensor iteration"
  std::map<int, std::map<std::string, int>> scalars;     ///< by rank, how often
  std::map<std::pair<int, int>, std::uint64_t> digests;  ///< by stage and tp rank
};

Reported train(int ranks, const ParallelSizes& sizes, const std::string& yaml,
               TrainerOptions with = options()) {
  Reported all;
  std::mutex mutex;
  const FeatureRegistry registry = builtin_features();
  run_loopback_ranks(ranks, [&](Communicator& world) {
    const ProcessGroups groups(world, sizes);
    SessionOptions observing;
    if (!yaml.empty()) observing = session_options(yaml);
    observing.extra_sinks.push_back(make_callback_sink(
        [&](const StatRecord& record) {
          if (!record.leader) return;
          const std::scoped_lock lock(mutex);
          std::vector<std::pair<std::string, double>> stats;
          for (const StatValue& stat : record.stats) stats.emplace_back(stat.name, stat.value);
          // Partial sums are not reduced: each tensor-parallel rank has a record of its own.
          const int part = record.layout == Layout::kPartial ? groups.tp().rank() : 0;
          all.records.emplace(fmt::format("{} {} {} {} {}", record.iteration, record.layer, record.tensor,
                                          to_string(record.phase), part),
                              stats);
        },
        [&](std::int64_t, const Scalars& values) {
          const std::scoped_lock lock(mutex);
          for (const auto& [name, value] : values) ++all.scalars[world.rank()][name];
        },
        [&](const Finding& finding) {
          const std::scoped_lock lock(mutex);
          all.findings.push_back(
              fmt::format("{} {} {} {}", finding.check, finding.layer, finding.tensor, finding.iteration));
        }));
    DebugSession session(registry, SessionGroups::from(groups), observing);
    Trainer trainer(with,
                    {.world = &world,
                     .tp = &groups.tp(),
                     .dp = &groups.dp(),
                     .amax = &groups.tp_dp_cp(),
                     .pp = &groups.pp()},
                    &session);
    trainer.run(
        3,
        [](std::int64_t iteration, int microbatch) {
          return random_batch(static_cast<std::uint64_t>(iteration * 10 + microbatch), 16, 64);
        },
        [](const StepReport&) {});
    EXPECT_FALSE(session.detached());
    session.close();
    const std::scoped_lock lock(mutex);
    all.digests[{groups.pp().rank(), groups.tp().rank()}] = trainer.digest();
  });
  return all;
}

constexpr const char* kEverything = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, dgrad, wgrad]
      stats: [min, max, mean, std, cur_amax, numel]
seen:
  enabled: True
  observe: .*
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [activation], stats: [max, numel]}
)";

TEST(PipelineSession, StagesTogetherReportWhatOneDoes) {
  TrainerOptions with = options();
  const Reported one = train(2, {.tp = 2}, kEverything, with);
  Reported two = train(4, {.tp = 2, .pp = 2}, kEverything, with);
  // The last stage shows its copy of the tied weight, too.
  std::size_t copies = 0;
  for (auto record = two.records.begin(); record != two.records.end();) {
    if (record->first.find("output_layer.weight") == std::string::npos) {
      ++record;
    } else {
      record = two.records.erase(record);
      ++copies;
    }
  }
  EXPECT_GT(copies, 0U);
  EXPECT_GE(one.records.size(), 3U * (4U * 4U + 1U) * 6U);
  EXPECT_EQ(two.records, one.records) << "each once, with the same numbers";
  ASSERT_EQ(two.scalars.size(), 1U) << "rank 0 writes them";
  EXPECT_EQ(two.scalars, one.scalars);
  EXPECT_EQ(two.scalars.at(0).at("loss"), 3);
  EXPECT_EQ(two.scalars.at(0).at("grad_norm"), 3);
}

TEST(PipelineSession, ObservingChangesNoBit) {
  const Reported plain = train(4, {.tp = 2, .pp = 2}, "");
  EXPECT_THAT(plain.records, IsEmpty());
  EXPECT_EQ(train(4, {.tp = 2, .pp = 2}, kEverything).digests, plain.digests);
}

TEST(PipelineSession, AHealthyRunBreaksNoInvariant) {
  for (const char* preset : {"watch", "nan"}) {
    SCOPED_TRACE(preset);
    const std::string yaml(find_preset(preset)->yaml);
    EXPECT_THAT(train(4, {.tp = 2, .pp = 2}, yaml).findings, IsEmpty());
    EXPECT_THAT(train(4, {.pp = 4}, yaml).findings, IsEmpty());
  }
}

TEST(PipelineSession, AFaultOfTheLastStageIsFoundThere) {
  TrainerOptions with = options();
  with.faults = {parse_fault("nan@layer=decoder.layers.4.mlp.linear_fc2,iteration=1")};
  const Reported struck = train(2, {.pp = 2}, R"(
guard:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    NonFiniteGuard: {enabled: True, tensors: [activation, weight, gradient]}
)",
                                with);
  ASSERT_FALSE(struck.findings.empty());
  EXPECT_THAT(struck.findings,
              ::testing::Contains("first non-finite decoder.layers.4.mlp.linear_fc2 activation 1"));
}

}  // namespace
}  // namespace amaxscope::megatron

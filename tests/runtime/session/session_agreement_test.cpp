// How sessions stay together: what costs a collective, what ranks compare, and what happens when they differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "runtime/config/config.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;

std::string log_everything(int freq) {
  return fmt::format(R"(
everything:
  enabled: true
  layers: {{layer_types: [all]}}
  transformer_engine:
    LogTensorStats:
      enabled: true
      tensors: [activation, weight]
      stats: [min, max, mean, std, cur_amax]
      freq: {}
)",
                     freq);
}

constexpr const char* kFakeQuant = R"(
fake:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    FakeQuant: {enabled: true, gemms: [fprop], tensors: [activation, weight], quant_format: FP8E4M3}
)";

TEST(SessionAgreement, WithoutConfigOrSwitchedOffNothingIsSentAndNothingActive) {
  const auto body = [](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    EXPECT_FALSE(self.session.enabled());
    EXPECT_FALSE(handle.active());
    EXPECT_EQ(handle.quantizer(TensorKind::kWeight), nullptr);
    self.session.scalar("loss", 1);
    self.session.observe("a", "residual", Tensor::of<float>({1}, {1, 1}), Layout::kReplicated);
    self.session.step();
    self.session.step();
    EXPECT_EQ(self.session.iteration(), 2);
    EXPECT_EQ(self.debug_calls(), 0U);
  };
  run_sessions({.ranks = 2, .sizes = {.tp = 2}}, body);
  run_sessions({.ranks = 2,
                .sizes = {.tp = 2},
                .yaml = log_everything(1),
                .adjust = [](SessionOptions& o, int) { o.environment.enabled = false; }},
               body);
}

TEST(SessionAgreement, StepsWithNothingDueSendNothing) {
  run_sessions({.ranks = 4, .sizes = {.tp = 4}, .yaml = log_everything(100)}, [](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    const auto step = [&] {
      feed(handle, TensorKind::kWeight, Tensor::of<float>({1}, {1, 1}));
      self.session.step();
    };
    step();  // iteration 0 is due, and registrations are compared
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    const std::uint64_t before = self.debug_calls();
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    for (int i = 1; i < 100; ++i) {
      EXPECT_EQ(handle.active() && handle.quantizer(TensorKind::kWeight) != nullptr, false) << i;
      step();
    }
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    EXPECT_EQ(self.debug_calls(), before);
  });
}

class SessionCost : public ::testing::TestWithParam<int> {};

TEST_P(SessionCost, ADueStepTakesThreeCollectivesForAnyNumberOfTensors) {
  const int ranks = GetParam();
  run_sessions({.ranks = ranks, .sizes = {.tp = ranks}, .yaml = log_everything(1)}, [](SessionRank& self) {
    std::vector<LayerHandle> handles;
    for (int i = 0; i < 100; ++i)
      handles.push_back(self.session.layer(self.layer(fmt::format("layer{}.fc1", i))));
    const auto step = [&] {
      for (const LayerHandle& handle : handles) {
        feed(handle, TensorKind::kWeight, Tensor::of<float>({1, 2}, {1, 2}));
        feed(handle, TensorKind::kActivation, Tensor::of<float>({3, 4}, {1, 2}));
      }
      self.session.step();
    };
    step();
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    const std::uint64_t before = self.debug_calls();
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    step();
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    EXPECT_EQ(self.debug_calls() - before, 3U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionCost, ::testing::Values(2, 32));

TEST(SessionAgreement, FeaturesFollowTheScheduleFromAnyFirstIteration) {
  for (const std::int64_t first : {7, 10}) {
    const auto collected = run_sessions(
        {.yaml = log_everything(5), .adjust = [&](SessionOptions& o, int) { o.first_iteration = first; }},
        [](SessionRank& self) {
          const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
          while (self.session.iteration() < 21) {
            feed(handle, TensorKind::kWeight, Tensor::of<float>({1}, {1, 1}));
            self.session.step();
          }
        });
    std::vector<std::int64_t> iterations;
    for (const StatRecord& record : collected->of(0, "a.fc1", "weight"))
      iterations.push_back(record.iteration);
    EXPECT_THAT(iterations, ::testing::ElementsAre(10, 15, 20)) << "first iteration " << first;
  }
}

// S-20: the reference matches what ranks have by the order of registration.
TEST(SessionAgreement, RanksMayRegisterAndFeedInAnyOrder) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = log_everything(1)}, [](SessionRank& self) {
        std::vector<std::string> names = {"a.fc1", "b.fc1", "c.fc1"};
        if (self.world.rank() == 1) std::ranges::reverse(names);
        std::map<std::string, LayerHandle> handles;
        for (const std::string& name : names) handles[name] = self.session.layer(self.layer(name));
        for (const std::string& name : names) {
          const auto value = static_cast<float>(10 * (name[0] - 'a') + self.world.rank());
          feed(handles[name], TensorKind::kWeight, Tensor::of<float>({value}, {1, 1}));
        }
        self.session.step();
        EXPECT_FALSE(self.session.detached());
      });
  for (const int rank : {0, 1}) {
    for (const std::string name : {"a.fc1", "b.fc1", "c.fc1"}) {
      const StatRecord record = collected->of(rank, name, "weight").at(0);
      EXPECT_EQ(stat(record, "min"), 10 * (name[0] - 'a')) << name;
      EXPECT_EQ(stat(record, "max"), 10 * (name[0] - 'a') + 1) << name;
    }
  }
}

TEST(SessionAgreement, ObservingRanksThatDifferDetachAndTrainOn) {
  std::atomic<int> detached = 0;
  ::testing::internal::CaptureStderr();
  run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = log_everything(1)}, [&](SessionRank& self) {
    static_cast<void>(self.session.layer(self.layer("a.fc1")));
    if (self.world.rank() == 1) static_cast<void>(self.session.layer(self.layer("b.fc1")));
    self.session.step();
    self.world.barrier({.traffic = Traffic::kTrainer, .what = "test"});
    if (self.session.detached()) ++detached;
    EXPECT_FALSE(self.session.enabled());
    self.session.step();
    EXPECT_EQ(self.session.iteration(), 2);
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(detached, 2);
  EXPECT_THAT(printed, HasSubstr("only on rank 1: b.fc1 "));
  EXPECT_THAT(printed, HasSubstr("Stopped observing; the training goes on untouched"));
}

TEST(SessionAgreement, AlteringRanksThatDifferEndTheJobAtTheFirstAmaxReduction) {
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kFakeQuant},
                            [](SessionRank& self) {
                              const LayerHandle common = self.session.layer(self.layer("a.fc1"));
                              if (self.world.rank() == 1)
                                static_cast<void>(self.session.layer(self.layer("b.fc1")));
                              feed(common, TensorKind::kWeight, Tensor::of<float>({1, 2}, {1, 2}));
                              ADD_FAILURE() << "altering runs must not go on";
                            }),
               Error);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, HasSubstr("a.fc1 weight: the ranks of a group registered different"));
  EXPECT_THAT(printed, HasSubstr("only on rank 1: b.fc1 "));
}

TEST(SessionAgreement, RanksStartedWithOtherConfigsFailAlikeWithBothDigests) {
  std::atomic<int> failures = 0;
  const FeatureRegistry registry = builtin_features();
  run_loopback_ranks(2, [&](Communicator& world) {
    ProcessGroups groups(world, {.tp = 2});
    SessionOptions options;
    options.config_text = log_everything(world.rank() + 1);
    try {
      DebugSession session(registry, SessionGroups::from(groups), options);
    } catch (const Error& error) {
      ++failures;
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_THAT(error.what(), HasSubstr(text_digest(log_everything(1))));
      EXPECT_THAT(error.what(), HasSubstr(text_digest(log_everything(2))));
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
  });
  EXPECT_EQ(failures, 2);
}

TEST(SessionAgreement, ARankOneStepAheadIsAMismatchAndNotACrash) {
  std::atomic<int> detached = 0;
  run_sessions({.ranks = 2,
                .sizes = {.tp = 2},
                .yaml = log_everything(1),
                .adjust = [](SessionOptions& o, int) { o.deadline = std::chrono::milliseconds(500); }},
               [&](SessionRank& self) {
                 const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                 feed(handle, TensorKind::kWeight, Tensor::of<float>({1}, {1, 1}));
                 self.session.step();
                 if (self.world.rank() == 1) self.session.step();
                 if (self.session.detached()) ++detached;
               });
  EXPECT_EQ(detached, 1) << "the rank that waited alone";
}

TEST(SessionAgreement, SectionsWithoutALayerAreAnErrorInStrictMode) {
  constexpr const char* kYaml = R"(
typo:
  enabled: true
  layers: {layer_types: [fc9]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [weight], stats: [max]}
)";
  const auto body = [](SessionRank& self) {
    static_cast<void>(self.session.layer(self.layer("decoder.fc1")));
    self.session.step();
  };
  run_sessions({.yaml = kYaml}, body);
  try {
    run_sessions({.yaml = kYaml, .adjust = [](SessionOptions& o, int) { o.strict = true; }}, body);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("config:2:1: section \"typo\" matched no layer on any rank"));
    EXPECT_THAT(error.what(), HasSubstr("decoder.fc1"));
  }
}

// cases.md case 14: layers 0 to 9 on the first pipeline stage, 10 to 19 on the second.
TEST(SessionAgreement, SectionsAreLookedForOnEveryPipelineStage) {
  const auto section = [](const std::string& name, const std::string& pattern) {
    return fmt::format(
        "{}:\n  enabled: true\n  layers: {{layer_name_regex_pattern: '{}'}}\n  transformer_engine:\n"
        "    LogTensorStats: {{enabled: true, tensors: [weight], stats: [max]}}\n",
        name, pattern);
  };
  const std::string yaml = section("open", R"(decoder\.1)") + section("closed", R"(decoder\.1\.)") +
                           section("second_stage", R"(decoder\.15\.)");
  std::map<int, std::map<std::string, std::vector<std::string>>> found;
  std::mutex mutex;
  run_sessions({.ranks = 2,
                .sizes = {.pp = 2},
                .yaml = yaml,
                .adjust = [](SessionOptions& o, int) { o.strict = true; }},
               [&](SessionRank& self) {
                 const int first = 10 * self.world.rank();
                 for (int i = first; i < first + 10; ++i) {
                   static_cast<void>(self.session.layer(self.layer(fmt::format("decoder.{}.fc1", i))));
                 }
                 self.session.step();
                 const std::scoped_lock lock(mutex);
                 found[self.world.rank()] = self.session.section_layers();
               });
  EXPECT_THAT(found[0]["open"], ::testing::ElementsAre("decoder.1.fc1"));
  EXPECT_EQ(found[1]["open"].size(), 10U) << "the pattern is searched for: 10 to 19 begin with 1";
  EXPECT_THAT(found[0]["closed"], ::testing::ElementsAre("decoder.1.fc1"));
  EXPECT_TRUE(found[1]["closed"].empty());
  EXPECT_TRUE(found[0]["second_stage"].empty()) << "and that is no error";
  EXPECT_THAT(found[1]["second_stage"], ::testing::ElementsAre("decoder.15.fc1"));
}

// The first rank that has such layers says so, once, in its log.
TEST(SessionAgreement, APatternThatEndsInsideANumberIsSaidOnce) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("amaxscope_number_hint_{}", ::getpid());
  std::filesystem::remove_all(dir);
  const auto hints_of = [&](const std::string& pattern, int layers_per_rank) {
    run_sessions(
        {.ranks = 3,
         .sizes = {.pp = 3},
         .yaml = fmt::format("some:\n  enabled: true\n  layers: {{layer_name_regex_pattern: '{}'}}\n"
                             "  transformer_engine:\n"
                             "    LogTensorStats: {{enabled: true, tensors: [weight], stats: [max]}}\n",
                             pattern),
         .adjust = [&](SessionOptions& o, int) { o.log_dir = dir / pattern; }},
        [&](SessionRank& self) {
          const int first = layers_per_rank * self.world.rank();
          for (int i = first; i < first + layers_per_rank; ++i) {
            static_cast<void>(self.session.layer(self.layer(fmt::format("decoder.{}.fc1", i))));
          }
          self.session.step();
          self.session.step();
        });
    std::vector<int> hints;
    for (int rank = 0; rank < 3; ++rank) {
      std::ostringstream text;
      text << std::ifstream(dir / pattern / "nvdlfw_inspect_logs" /
                            fmt::format("nvdlfw_inspect_globalrank-{}.log", rank))
                  .rdbuf();
      int found = 0;
      for (std::size_t at = 0; (at = text.str().find("ends inside a number", at)) != std::string::npos; ++at)
        ++found;
      hints.push_back(found);
    }
    return hints;
  };
  EXPECT_THAT(hints_of(R"(decoder\.1)", 20), ::testing::ElementsAre(1, 0, 0));
  EXPECT_THAT(hints_of(R"(oder\.1)", 7), ::testing::ElementsAre(0, 1, 0)) << "ranks 1 and 2 have 10 to 19";
  EXPECT_THAT(hints_of(R"(decoder\.1\.)", 7), ::testing::ElementsAre(0, 0, 0));
  std::filesystem::remove_all(dir);
}

class FullSink final : public Sink {
 public:
  void record(const StatRecord&) override { ++records; }
  void scalars(std::int64_t, const Scalars&) override {}
  void end_of_step(std::int64_t iteration) override {
    if (iteration == 1) throw Error(ErrorCode::kIo, "some.log: cannot be written: No space left on device");
  }
  void close() override { closed = true; }
  int records = 0;
  bool closed = false;
};

// cases.md case 38: under either policy, and on the rank whose disk is full only, the log ends and nothing
// else.
TEST(SessionAgreement, ALogThatCannotBeWrittenEndsNothing) {
  for (const FailurePolicy policy : {FailurePolicy::kDetach, FailurePolicy::kAbort}) {
    const auto full = std::make_shared<FullSink>();
    ::testing::internal::CaptureStderr();
    const auto collected =
        run_sessions({.ranks = 2,
                      .sizes = {.tp = 2},
                      .yaml = "s:\n  enabled: true\n  layers: {layer_types: [all]}\n  transformer_engine:\n"
                              "    LogTensorStats: {enabled: true, tensors: [weight], stats: [max]}\n",
                      .adjust =
                          [&](SessionOptions& o, int rank) {
                            o.failure_policy = policy;
                            if (rank == 1) o.extra_sinks.insert(o.extra_sinks.begin(), full);
                          }},
                     [&](SessionRank& self) {
                       const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                       const Tensor x = Tensor::of<float>({1}, {1, 1});
                       for (int step = 0; step < 4; ++step) {
                         feed(handle, TensorKind::kWeight, x.view());
                         self.session.step();
                       }
                       EXPECT_FALSE(self.session.detached());
                       EXPECT_EQ(self.session.write_failure().has_value(), self.world.rank() == 1);
                     });
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(full->records, 2) << "iterations 0 and 1";
    EXPECT_FALSE(full->closed);
    EXPECT_EQ(collected->of(0, "a.fc1", "weight").size(), 4U);
    EXPECT_EQ(collected->of(1, "a.fc1", "weight").size(), 4U) << "the other sinks of the rank go on";
    const std::size_t said = printed.find("No space left on device");
    ASSERT_NE(said, std::string::npos);
    EXPECT_EQ(printed.find("No space left on device", said + 1), std::string::npos) << printed;
  }
}

// cases.md case 37: a process that ends without close() has its finished steps on disk.
TEST(SessionAgreement, StepsAreOnDiskWithoutAClose) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("amaxscope_unclosed_{}", ::getpid());
  std::filesystem::remove_all(dir);
  const auto text = [&](const std::string& file) {
    std::ostringstream all;
    all << std::ifstream(dir / file).rdbuf();
    return all.str();
  };
  const FeatureRegistry registry = builtin_features();
  SessionOptions options;
  options.config_text = log_everything(1);
  options.log_dir = dir;
  const auto expect_two_steps = [&] {
    const std::string records = text("metrics/rank_0.jsonl");
    EXPECT_THAT(records, HasSubstr(R"({"iteration":0,"end_of_step":true,"records":1})"));
    EXPECT_THAT(records, HasSubstr(R"({"iteration":1,"end_of_step":true,"records":1})"));
    EXPECT_THAT(text("nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-0.log"),
                HasSubstr("iteration=000001"));
    EXPECT_THAT(text("run.json"), HasSubstr("\"unclosed\""));
  };
  {
    DebugSession session(registry, {}, options);
    LayerDescription description;
    description.name = "a.fc1";
    const LayerHandle handle = session.layer(description);
    for (int step = 0; step < 2; ++step) {
      feed(handle, TensorKind::kWeight, Tensor::of<float>({1}, {1, 1}));
      session.step();
    }
    feed(handle, TensorKind::kWeight, Tensor::of<float>({7}, {1, 1}));  // a step that does not end
    expect_two_steps();  // as they would stand there had the process been killed now
  }
  expect_two_steps();
  // Another session in the same process knows nothing of the first one, nor of its unfinished step.
  options.log_dir.clear();
  std::vector<StatRecord> records;
  options.extra_sinks.push_back(
      make_callback_sink([&](const StatRecord& record) { records.push_back(record); }, nullptr));
  DebugSession second(registry, {}, options);
  LayerDescription description;
  description.name = "a.fc1";
  const LayerHandle handle = second.layer(description);
  feed(handle, TensorKind::kWeight, Tensor::of<float>({2}, {1, 1}));
  second.step();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].iteration, 0);
  EXPECT_EQ(stat(records[0], "max"), 2);
  std::filesystem::remove_all(dir);
}

TEST(SessionAgreement, LayerNamesAreUniqueAndSessionsIndependent) {
  run_sessions({.yaml = log_everything(1)}, [](SessionRank& self) {
    static_cast<void>(self.session.layer(self.layer("a.fc1")));
    EXPECT_THROW(static_cast<void>(self.session.layer(self.layer("a.fc1"))), Error);
    const FeatureRegistry registry = builtin_features();
    SessionOptions options;
    options.config_text = log_everything(1);
    DebugSession second(registry, {}, options);
    EXPECT_TRUE(second.layer(self.layer("a.fc1")).active());
    EXPECT_EQ(second.iteration(), 0);
  });
}

/// A user's own feature that fails.
class Failing final : public Feature {
 public:
  using Feature::Feature;
  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&, std::int64_t) const override {
    return Decision::always();
  }
  void inspect_tensor(const InspectContext&) override { throw std::runtime_error("out of luck"); }
};

TEST(SessionAgreement, AFailingObserverIsNamedAndTheTensorGoesOn) {
  FeatureRegistry registry = builtin_features();
  registry.add({.schema = {.name = "Failing", .doc = "Fails.", .takes_tensors = true},
                .base_namespace = false,
                .make = [](FeatureConfig config) { return std::make_unique<Failing>(std::move(config)); }});
  SessionOptions options;
  options.config_text = R"(
s:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    Failing: {enabled: true, tensors: [weight]}
)";
  DebugSession session(registry, {}, options);
  LayerDescription description;
  description.name = "a.fc1";
  const LayerHandle handle = session.layer(description);
  ASSERT_TRUE(handle.active());
  ::testing::internal::CaptureStderr();
  const Tensor weight = Tensor::of<float>({1, 2}, {1, 2});
  const auto quantized = handle.quantizer(TensorKind::kWeight)->quantize(weight, {true, false}, {});
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(quantized->dequantize(DType::kF32).values<float>()[1], 2);
  EXPECT_THAT(printed, HasSubstr("Failing of section s (line 6) failed on weight of a.fc1: out of luck"));
  EXPECT_TRUE(session.detached());
  EXPECT_FALSE(handle.active());
}

}  // namespace
}  // namespace amaxscope::testing

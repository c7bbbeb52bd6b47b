#include "tests/runtime/session/change_scenes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "tests/runtime/session/live_files.hpp"
#include "tests/runtime/session/live_scene.hpp"

namespace amaxscope::testing {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

ParallelSizes all_tensor_parallel(const Communicator& world) { return {.tp = world.size()}; }

std::string logging(const std::string& name, const std::string& stat, const std::string& keys = "freq: 1") {
  return section(name, "LogTensorStats", "stats: [" + stat + "], " + keys);
}

SessionOptions replaceable(const std::string& yaml, const std::filesystem::path& log_dir = {}) {
  SessionOptions options = with_config(yaml);
  options.replaceable_config = true;
  options.poll_every = 2;
  options.log_dir = log_dir;
  return options;
}

/// Iterations at which the layer has this statistic.
std::vector<std::int64_t> iterations_with(const LiveRank& rank, const std::string& layer,
                                          const std::string& stat) {
  std::vector<std::int64_t> iterations;
  for (const StatRecord& record : rank.records) {
    for (const StatValue& value : record.stats) {
      if (record.layer == layer && value.name == stat) iterations.push_back(record.iteration);
    }
  }
  return iterations;
}

}  // namespace

void scene_dumps_everywhere_at_the_iteration_after(Communicator& world) {
  const std::filesystem::path dir = fresh_directory(world, "event_dump");
  SessionOptions options = with_config(section("all", "Alarm", "action: dump"));
  options.log_dir = dir;
  LiveRank rank(world, all_tensor_parallel(world), std::move(options));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(3, {layer});
  LiveRank::feed(layer, rank.rank() == world.size() - 1 ? 99.0F : 1.0F);
  rank.session().step();
  rank.run_to(7, {layer});
  rank.session().close();
  const auto files = names_below(dir / "events" / "tensor_dumps" / ("rank_" + std::to_string(rank.rank())));
  EXPECT_THAT(files, ElementsAre("iter_000004/fc1.activation.mb0.forward.safetensors", "manifest.jsonl"))
      << "one file, of the iteration after";
  world.barrier({});
}

void scene_what_led_to_it_is_on_disk(Communicator& world) {
  const std::filesystem::path dir = fresh_directory(world, "event_record");
  SessionOptions options =
      with_config(section("all", "Alarm", "action: record") + logging("stats", "max", "freq: 2"));
  options.log_dir = dir;
  options.ring_steps = 3;
  LiveRank rank(world, all_tensor_parallel(world), std::move(options));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(9, {layer});
  LiveRank::feed(layer, rank.rank() == 0 ? 99.0F : 5.0F);
  rank.session().step();
  const auto lines =
      lines_of_json(dir / "events" / "iter_000009" / ("rank_" + std::to_string(rank.rank()) + ".jsonl"));
  // A header, the event, the three last steps with statistics, and what the feature remembers.
  EXPECT_THAT(lines, SizeIs(6));
  if (lines.size() == 6) {
    EXPECT_EQ(lines[0].at("rank"), rank.rank());
    EXPECT_EQ(lines[1].at("event").at("ranks"), nlohmann::json::array({0}));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(lines[2 + i].at("iteration"), 4 + 2 * i);
      EXPECT_EQ(lines[2 + i].at("stats").at("max"), 3);
    }
    EXPECT_EQ(lines[5].at("iteration"), 9);
    EXPECT_EQ(lines[5].at("layer"), "fc1");
    EXPECT_TRUE(lines[5].contains("recent"));
  }
  if (rank.rank() == 0) {
    const auto metrics = lines_of_json(dir / "metrics" / "rank_0.jsonl");
    const auto event = std::ranges::find_if(metrics, [](const auto& line) { return line.contains("event"); });
    ASSERT_NE(event, metrics.end());
    EXPECT_EQ(event->at("iteration"), 9);
    EXPECT_EQ(event->at("event").at("layer"), "fc1");
    EXPECT_EQ(event->at("event").at("action"), "record");
    EXPECT_EQ(metrics.back().at("end_of_step"), true) << "the event is before its step's marker";
  }
  world.barrier({});
}

void scene_a_replaced_config_is_in_force_everywhere(Communicator& world) {
  const std::filesystem::path dir = fresh_directory(world, "replaced");
  LiveRank rank(world, {.tp = std::max(1, world.size() / 2), .pp = std::min(2, world.size())},
                replaceable(logging("stats", "max"), dir));
  const std::string name = rank.stage() == 0 ? "first" : "second";
  const LayerHandle layer = rank.add_layer(name);
  rank.run_to(3, {layer});
  rank.session().replace_config(logging("stats", "min"));  // counts on rank 0; the poll is at 4
  rank.run_to(7, {layer});
  rank.session().close();
  EXPECT_THAT(iterations_with(rank, name, "max"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(iterations_with(rank, name, "min"), ElementsAre(5, 6));
  EXPECT_FALSE(rank.session().detached());
  if (rank.rank() == 0) {
    ASSERT_THAT(rank.events, SizeIs(1));
    EXPECT_EQ(rank.events[0].first, 4);
    EXPECT_EQ(rank.events[0].second.kind, "config");
    EXPECT_THAT(rank.events[0].second.what, HasSubstr("in force from iteration 5"));
    const auto run = nlohmann::json::parse(text_of(dir / "run.json")).at("runs").at(0);
    EXPECT_EQ(run.at("config").at("text"), logging("stats", "max"));
    ASSERT_EQ(run.at("config_changes").size(), 1U);
    EXPECT_EQ(run.at("config_changes")[0].at("iteration"), 5);
    EXPECT_EQ(run.at("config_changes")[0].at("text"), logging("stats", "min"));
    const auto layers = world.size() == 1 ? nlohmann::json::array({"first"})
                                          : nlohmann::json::array({"first", "second"});  // of both stages
    EXPECT_EQ(run.at("config_changes")[0].at("section_layers").at("stats"), layers);
  }
  world.barrier({});
}

void scene_what_nothing_matched_before_becomes_active(Communicator& world) {
  // A session that was given no config at all.
  SessionOptions options = replaceable("");
  options.config_text.reset();
  LiveRank rank(world, all_tensor_parallel(world), std::move(options));
  EXPECT_TRUE(rank.session().enabled());
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  EXPECT_FALSE(layer.active());
  rank.session().replace_config(
      "other: {enabled: true, layers: {layer_types: [fc1]}, observe: '^hidden', transformer_engine: "
      "{LogTensorStats: {enabled: true, tensors: [activation], stats: [max]}}}");
  rank.run_to(3, {layer});
  EXPECT_TRUE(layer.active());
  rank.session().observe("hidden", "residual", Tensor::of<float>({7, 2}, {1, 2}), Layout::kReplicated);
  rank.run_to(4, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(3));
  EXPECT_THAT(iterations_with(rank, "hidden", "max"), ElementsAre(3));
  const LayerHandle late = rank.add_layer("late.fc1");
  rank.run_to(6, {layer, late});
  EXPECT_THAT(iterations_with(rank, "late.fc1", "max"), ElementsAre(4, 5));
}

void scene_two_changes_in_a_row(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), replaceable(logging("a", "max")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  rank.session().replace_config(logging("b", "min"));
  rank.run_to(3, {layer});
  rank.session().replace_config(logging("never", "l1_norm"));
  rank.session().replace_config(logging("c", "mean"));  // the last before the poll
  rank.run_to(7, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(0, 1, 2));
  EXPECT_THAT(iterations_with(rank, "fc1", "min"), ElementsAre(3, 4));
  EXPECT_THAT(iterations_with(rank, "fc1", "mean"), ElementsAre(5, 6));
  EXPECT_THAT(iterations_with(rank, "fc1", "l1_norm"), IsEmpty());
}

void scene_everything_is_taken_away(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), replaceable(section("all", "Alarm", "action: record")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  rank.session().replace_config("");
  rank.run_to(3, {layer});
  EXPECT_FALSE(layer.active());
  const std::uint64_t before = rank.debug_calls();
  rank.run_to(5, {layer});  // the poll of iteration 4, after the first comparison of no registrations at 3
  const std::uint64_t first = rank.debug_calls() - before;
  const std::uint64_t then = rank.debug_calls();
  rank.run_to(9, {layer});
  EXPECT_EQ(rank.debug_calls() - then, world.size() == 1 ? 0U : 2U) << "polls of iterations 6 and 8";
  EXPECT_LE(first, 3U);
  EXPECT_TRUE(rank.session().enabled());
  rank.session().replace_config(logging("back", "max"));
  rank.run_to(12, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(11));
}

void scene_a_config_that_is_not_valid_changes_nothing(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), replaceable(logging("stats", "max")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  if (rank.rank() == 0) {
    EXPECT_THROW(rank.session().replace_config(logging("stats", "maxx")), Error);
  }
  rank.run_to(5, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(rank.events, IsEmpty());

  LiveRank fixed(world, all_tensor_parallel(world), with_config(logging("stats", "max")));
  EXPECT_THROW(fixed.session().replace_config(""), Error) << "not asked for";
}

void scene_a_config_that_a_layer_refuses_changes_nothing(Communicator& world) {
  LiveRank rank(world, all_tensor_parallel(world), replaceable(logging("stats", "max")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  // Valid by itself; the layer has no recipe that it could take the place of.
  rank.session().replace_config(
      "scale: {enabled: true, layers: {layer_types: [all]}, transformer_engine: {PerTensorScaling: {enabled: "
      "true, gemms: [fprop], tensors: [activation]}}}");
  rank.run_to(5, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(rank.events, IsEmpty());
  EXPECT_FALSE(rank.session().detached());
  rank.session().replace_config(logging("stats", "min"));
  rank.run_to(8, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "min"), ElementsAre(7)) << "it can still be changed";
}

void scene_a_feature_goes_on_with_what_it_learned(Communicator& world) {
  const auto trends = [](const std::string& name) { return section(name, "Trends", "window: 8"); };
  LiveRank rank(world, all_tensor_parallel(world), replaceable(trends("stays") + logging("x", "max")));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(1, {layer});
  rank.session().replace_config(trends("stays") + logging("x", "min"));
  rank.run_to(5, {layer});
  // Three points make a slope: with those before the change it goes on at 3.
  EXPECT_THAT(iterations_with(rank, "fc1", "amax_log2_slope"), ElementsAre(2, 3, 4));
  rank.session().replace_config(trends("another"));
  rank.run_to(11, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "amax_log2_slope"), ElementsAre(2, 3, 4, 5, 6, 9, 10))
      << "anew from 7";
}

void scene_an_edited_file_is_noticed(Communicator& world) {
  const std::filesystem::path dir = fresh_directory(world, "watched");
  const std::filesystem::path file = dir / "config.yaml";
  const auto write = [&](const std::string& text) {
    if (world.rank() == 0) std::ofstream(file, std::ios::binary) << text;
    world.barrier({});
  };
  write(logging("stats", "max"));
  SessionOptions options;
  options.config_path = file;
  options.watch_config = true;
  options.poll_every = 1;
  options.log_dir = dir;
  LiveRank rank(world, all_tensor_parallel(world), std::move(options));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(3, {layer});
  write(logging("broken", "maxx"));
  rank.run_to(6, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(0, 1, 2, 3, 4, 5));
  write(logging("second", "min"));
  rank.run_to(10, {layer});  // seen at 6 and, unchanged, at 7
  EXPECT_THAT(iterations_with(rank, "fc1", "max"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(iterations_with(rank, "fc1", "min"), ElementsAre(8, 9));
  if (world.rank() == 0) std::filesystem::remove(file);
  world.barrier({});
  rank.run_to(13, {layer});
  EXPECT_THAT(iterations_with(rank, "fc1", "min"), ElementsAre(8, 9, 10, 11, 12))
      << "a missing file is no config";
  EXPECT_TRUE(rank.session().enabled());
  if (rank.rank() == 0) {
    const std::string log = text_of(dir / "nvdlfw_inspect_logs" / "nvdlfw_inspect_globalrank-0.log");
    const auto count = [&](const std::string& word) {
      std::size_t found = 0;
      for (std::size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) ++found;
      return found;
    };
    EXPECT_EQ(count("maxx"), 1U) << log;
    EXPECT_EQ(count("the new config is not taken"), 1U);
    EXPECT_EQ(count("the config in force stays"), 1U) << "of the missing file, once";
  }
  world.barrier({});
}

void scene_a_signal_writes_the_state(Communicator& world) {
  const std::filesystem::path dir = fresh_directory(world, "signal");
  SessionOptions options = with_config(logging("stats", "max", "freq: 4"));
  options.dump_on_signal = true;
  options.poll_every = 3;
  options.log_dir = dir;
  LiveRank rank(world, all_tensor_parallel(world), std::move(options));
  const LayerHandle layer = rank.add_layer("fc1");
  rank.run_to(4, {layer});
  world.barrier({});
  if (rank.rank() == world.size() - 1) std::raise(SIGUSR1);
  world.barrier({});
  rank.run_to(10, {layer});
  world.barrier({});
  const std::string own = std::to_string(rank.rank());
  EXPECT_TRUE(std::filesystem::exists(dir / "events" / "iter_000006" / ("rank_" + own + ".jsonl")));
  const std::string text = text_of(dir / "events" / "iter_000006" / ("rank_" + own + "_state.json"));
  ASSERT_FALSE(text.empty());
  const auto state = nlohmann::json::parse(text);
  EXPECT_EQ(state.at("iteration"), 6);
  EXPECT_EQ(state.at("rank"), rank.rank());
  EXPECT_EQ(state.at("detached"), false);
  EXPECT_EQ(state.at("poll_every"), 3);
  EXPECT_EQ(state.at("next_due"), 8);
  EXPECT_EQ(state.at("steps_kept"), 2) << "of iterations 0 and 4";
  EXPECT_EQ(state.at("layers")[0].at("name"), "fc1");
  EXPECT_EQ(state.at("layers")[0].at("features"), nlohmann::json::array({"stats/LogTensorStats"}));
  EXPECT_EQ(state.at("layers")[0].at("next"), 8);
  EXPECT_FALSE(std::filesystem::exists(dir / "events" / "iter_000009")) << "asked once";
  world.barrier({});
}

}  // namespace amaxscope::testing

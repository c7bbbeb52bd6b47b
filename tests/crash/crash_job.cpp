// A small training of one process that writes every kind of file a run can have, and goes on from its newest
// state where there is one: what tests/crash/kills starts, ends at any moment and starts again.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/tensorboard_sink.hpp"

namespace amaxscope::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChange = 7;   ///< another config is in force after this iteration
constexpr std::int64_t kSignal = 11;  ///< the state of the runtime is asked for in it
constexpr std::int64_t kAlarms[] = {3, 13};

/// Finds something at fixed iterations, so that events are recorded and tensors are dumped.
class Alarm final : public Feature {
 public:
  explicit Alarm(FeatureConfig config) : Feature(std::move(config)) {}
  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { services_ = services; }
  [[nodiscard]] EventAction trigger() const override { return EventAction::kDump; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&, std::int64_t) const override {
    return Decision::always();
  }
  void inspect_tensor(const InspectContext& context) override {
    for (const std::int64_t alarm : kAlarms) {
      if (context.iteration != alarm) continue;
      services_.report({.check = "alarm",
                        .iteration = context.iteration,
                        .layer = context.tensor.layer,
                        .tensor = context.tensor.name,
                        .ranks = {},
                        .what = "planted"});
    }
  }
  static FeatureEntry entry() {
    FeatureSchema schema;
    schema.name = "Alarm";
    schema.takes_tensors = true;
    return {.schema = std::move(schema),
            .make = [](FeatureConfig config) { return std::make_unique<Alarm>(std::move(config)); }};
  }

 private:
  FeatureServices services_;
};

std::string config_text(bool changed) {
  return fmt::format(R"(all:
  enabled: True
  layers: {{layer_types: [all]}}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [cur_amax, mean, l2_norm{}]
    LogFp8TensorStats: {{enabled: True, tensors: [activation], stats: [underflows%, mse], freq: 2}}
    Trends: {{enabled: True, tensors: [activation, gradient]}}
    DumpTensors:
      enabled: True
      tensors: [activation, weight]
      high_precision_tensor: True
      freq: 4
      max_bytes_per_rank: 60000
    InvariantGuard: {{enabled: True, tensors: [activation, weight, gradient]}}
alarms:
  enabled: True
  layers: {{layer_types: [linear_fc1]}}
  transformer_engine:
    Alarm: {{enabled: True, tensors: [activation]}}
)",
                     changed ? ", max" : "");
}

megatron::Batch batch_of(std::int64_t iteration) {
  megatron::Batch batch;
  auto state = static_cast<std::uint64_t>(iteration) + 1;
  for (int token = 0; token < 17; ++token) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto value = static_cast<std::int32_t>(state >> 58);
    if (token < 16) batch.inputs.push_back(value);
    if (token > 0) batch.targets.push_back(value);
  }
  return batch;
}

int run(const fs::path& folder, std::int64_t steps, std::int64_t save_every) {
  const fs::path states = folder / "states";
  fs::path resumed;
  std::int64_t first = 0;
  if (fs::exists(states / "newest")) {
    resumed = megatron::find_state(states);
    first = megatron::iteration_of_state(megatron::state_file(resumed, 0));
  }
  FeatureRegistry registry = builtin_features();
  registry.add(Alarm::entry());
  SessionOptions observing;
  observing.config_text = config_text(first > kChange);
  observing.log_dir = folder / "log";
  observing.first_iteration = first;
  observing.replaceable_config = true;
  observing.dump_on_signal = true;
  if (has_tensorboard_sink()) observing.extra_sinks.push_back(make_tensorboard_sink(observing.log_dir, 0));
  DebugSession session(registry, {}, std::move(observing));
  megatron::TrainerOptions options;
  options.model.layers = 1;
  options.model.hidden = 16;
  options.model.heads = 2;
  options.model.sequence = 16;
  options.model.vocabulary = 64;
  options.recipe = RecipeKind::kDelayed;
  options.learning_rate = {
      .peak = 3e-3, .warmup_steps = 3, .total_steps = 40, .decay = megatron::Decay::kCosine};
  options.first_iteration = first;
  megatron::Trainer trainer(options, {}, &session);
  if (!resumed.empty()) trainer.load_state(resumed);
  while (trainer.iteration() < steps) {
    const std::int64_t iteration = trainer.iteration();
    if (iteration == kChange) session.replace_config(config_text(true));
    if (iteration == kSignal) std::raise(SIGUSR1);
    trainer.step([](std::int64_t at, int) { return batch_of(at); });
    const std::int64_t done = trainer.iteration();
    if (done % save_every != 0) continue;
    trainer.save_state(megatron::state_directory(states, done));
    megatron::mark_newest_state(states, done);
  }
  session.close();
  std::printf("done from %lld, weights %016llx\n", static_cast<long long>(first),
              static_cast<unsigned long long>(trainer.digest()));
  return session.detached() || session.write_failure() ? 1 : 0;
}

}  // namespace
}  // namespace amaxscope::testing

int main(int argc, char** argv) {
  CLI::App app{"a training to be killed"};
  std::filesystem::path folder;
  std::int64_t steps = 20;
  std::int64_t save_every = 5;
  app.add_option("--folder", folder)->required();
  app.add_option("--steps", steps);
  app.add_option("--save-every", save_every);
  CLI11_PARSE(app, argc, argv);
  try {
    return amaxscope::testing::run(folder, steps, save_every);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crash_job: %s\n", error.what());
    return 2;
  }
}

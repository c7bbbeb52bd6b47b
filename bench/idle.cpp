// What a session costs where nothing is due, and what it costs to decide what is: nanoseconds, the least of
// many rounds. One rank, 100 layers. usage: build/release/bench/bench_idle
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <vector>

#include "features/builtin.hpp"
#include "runtime/session.hpp"

namespace amaxscope {
namespace {

constexpr const char* kConfig = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, dgrad, wgrad]
      stats: [mean, std, cur_amax]
      freq: {}
      start_step: {}
)";
constexpr TensorKind kTensors[] = {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient,
                                   TensorKind::kOutput,     TensorKind::kDgrad,  TensorKind::kWgrad};

struct Run {
  Run(int freq, int start) : session(registry, {}, options(freq, start)) {
    for (int i = 0; i < 100; ++i) {
      LayerDescription description;
      description.name = fmt::format("decoder.layers.{}.mlp.linear_fc1", i + 1);
      layers.push_back(session.layer(description));
    }
  }
  static SessionOptions options(int freq, int start) {
    SessionOptions result;
    result.config_text = fmt::format(kConfig, freq, start);
    result.environment.log_level = "error";
    return result;
  }

  FeatureRegistry registry = builtin_features();
  DebugSession session;
  std::vector<LayerHandle> layers;
};

/// One question, as the trainer asks it before it touches a tensor; layers one after the other.
void gate(benchmark::State& state) {
  Run run(1000000, 900000);
  for (const LayerHandle& layer : run.layers) {  // each learns once when it is next
    if (layer.active()) static_cast<void>(layer.quantizer(TensorKind::kActivation));
  }
  std::size_t i = 0;
  int active = 0;
  for (auto round : state) {
    static_cast<void>(round);
    active += run.layers[i].active() ? 1 : 0;
    i = i + 1 < run.layers.size() ? i + 1 : 0;
  }
  if (active != 0) state.SkipWithError("a layer was active");
  benchmark::DoNotOptimize(active);
}

/// The six tensors of a GEMM layer's three passes.
void gemm(benchmark::State& state) {
  Run run(1000000, 900000);
  for (const LayerHandle& layer : run.layers) {
    if (layer.active()) static_cast<void>(layer.quantizer(TensorKind::kActivation));
  }
  std::size_t i = 0;
  int active = 0;
  for (auto round : state) {
    static_cast<void>(round);
    for (int tensor = 0; tensor < 6; ++tensor) {
      active += run.layers[i].active() ? 1 : 0;
      benchmark::ClobberMemory();  // work of the trainer lies between the questions
    }
    i = i + 1 < run.layers.size() ? i + 1 : 0;
  }
  if (active != 0) state.SkipWithError("a layer was active");
  benchmark::DoNotOptimize(active);
}

/// Plans for the six tensors of a layer, at an iteration where all are due. An iteration of the bench is one
/// layer.
void routing(benchmark::State& state) {
  Run run(1, 0);
  std::size_t i = run.layers.size();
  for (auto round : state) {
    static_cast<void>(round);
    if (i == run.layers.size()) {
      state.PauseTiming();
      run.session.step();
      i = 0;
      state.ResumeTiming();
    }
    for (const TensorKind tensor : kTensors) benchmark::DoNotOptimize(run.layers[i].quantizer(tensor));
    ++i;
  }
}

BENCHMARK(gate);
BENCHMARK(gemm);
BENCHMARK(routing)->Iterations(20000);

}  // namespace
}  // namespace amaxscope

BENCHMARK_MAIN();

// What `amaxscope train` is asked to do. A value type, its command line and its checks.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace amaxscope::launch {

struct TrainOptions {
  std::vector<std::string> data;  ///< empty: the licence texts of this system
  std::string config;             ///< debug YAML; empty: none
  std::string recipe = "delayed";
  int tp = 1;
  int pp = 1;
  bool sequence_parallel = false;
  std::int64_t steps = 100;
  std::int64_t layers = 2;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t sequence = 128;
  std::int64_t batch = 8;  ///< sequences of one micro-batch on one data-parallel rank
  std::int64_t micro_batches = 1;
  double learning_rate = 3e-3;
  std::string gemm = "blas";
  std::string norm = "layer";
  std::string mlp = "gelu";
  bool rope = false;
  bool qk_norm = false;
  bool recompute = false;
  std::int64_t experts = 0;  ///< 0: dense
  std::int64_t top_k = 1;
  bool fp8_weights = false;
  std::int64_t eval_every = 0;  ///< 0: never
  std::int64_t save_every = 0;  ///< 0: never
  std::string save_dir;
  std::string resume;  ///< a saved state, or a folder of them; empty: start anew
  std::string preset;
  std::vector<std::string> plugins;
  std::vector<std::string> inject;
  std::uint64_t seed = 1;
  std::uint64_t perturb = 0;  ///< 0: not
  std::string dtype = "f32";
  std::string device = "cpu";
  std::string unsupported_gemm = "decode";  ///< on a device
  bool watch_config = false;
  std::int64_t poll_every = 0;  ///< 0: the session's choice
  std::int64_t deadline = 600;  ///< seconds that ranks may wait for one another
  bool no_signals = false;
  std::string log_dir;  ///< empty: amaxscope_logs/<date>-<time>
  bool tensorboard = false;
  bool json = false;

  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

void add_train_options(CLI::App& app, TrainOptions& options);

/// Throws Error(kUsage): a value that is not allowed, sizes that do not divide, a choice that is not built
/// yet.
void validate(const TrainOptions& options, int world_size);

/// Everything that decides what is trained, as it would stand on the command line, by option name.
std::map<std::string, std::string> described(const TrainOptions& options);

}  // namespace amaxscope::launch

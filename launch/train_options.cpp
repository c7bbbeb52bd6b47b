#include "launch/train_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "features/presets.hpp"
#include "launch/plugins.hpp"
#include "megatron/fault_kinds.hpp"
#include "runtime/config/diagnostics.hpp"
#include "runtime/quantizers/recipe.hpp"
#include "runtime/sinks/tensorboard_sink.hpp"

namespace amaxscope::launch {

namespace {

/// The last mention of an option counts, so that scripts can append to defaults.
template <class T>
void add(CLI::App& app, const std::string& name, T& value, const std::string& type, const std::string& doc) {
  app.add_option(name, value, doc)->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void require_one_of(const char* option, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::ranges::find(allowed, value) != allowed.end()) return;
  throw Error(ErrorCode::kUsage, fmt::format("{} {}: unknown{}", option, value, suggestion(value, allowed)));
}

void require_at_least(const char* option, std::int64_t value, std::int64_t least) {
  AMAXSCOPE_CHECK(value >= least, ErrorCode::kUsage, "{} {}: must be at least {}", option, value, least);
}

void require_divisible(const char* what, std::int64_t value, const char* by, std::int64_t divisor) {
  AMAXSCOPE_CHECK(value % divisor == 0, ErrorCode::kUsage, "{} {} is not divisible by {} {}", what, value, by,
                  divisor);
}

/// Both extents of every operand must be whole blocks of the formats that cannot cut them.
void require_whole_blocks(const TrainOptions& options) {
  const std::int64_t block = required_multiple(parse_recipe(options.recipe).value());
  const auto require = [&](const std::string& what, std::int64_t value) {
    AMAXSCOPE_CHECK(value % block == 0, ErrorCode::kUsage, "--recipe {} needs multiples of {}: {} is {}",
                    options.recipe, block, what, value);
  };
  require("--seq times --batch", options.sequence * options.batch);
  require("--hidden divided by --tp", options.hidden / options.tp);
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& options) {
  app.add_option("--data", options.data,
                 "text file, read as bytes; may be repeated (default: the system's licence texts)")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  add(app, "--config", options.config, "YAML", "debug config (default: none)");
  add(app, "--recipe", options.recipe, "R", "none, delayed (default), current, mxfp8, block or nvfp4");
  add(app, "--tp", options.tp, "N",
      "tensor-parallel ranks (default 1); what --tp and --pp leave of the job is data parallel");
  add(app, "--pp", options.pp, "N",
      "pipeline stages (default 1), of --layers / N layers each; 1F1B over --micro-batches");
  app.add_flag("--sequence-parallel", options.sequence_parallel, "split tokens over tp outside of the GEMMs");
  add(app, "--steps", options.steps, "N", "optimizer steps (default 100)");
  add(app, "--layers", options.layers, "N", "transformer layers (default 2)");
  add(app, "--hidden", options.hidden, "N", "hidden size (default 128)");
  add(app, "--heads", options.heads, "N", "attention heads (default 4)");
  add(app, "--seq", options.sequence, "N", "bytes of a sequence (default 128)");
  add(app, "--batch", options.batch, "N",
      "sequences of a micro-batch on each data-parallel rank (default 8)");
  add(app, "--micro-batches", options.micro_batches, "N", "micro-batches of a step (default 1)");
  add(app, "--learning-rate", options.learning_rate, "X", "of Adam (default 0.003)");
  add(app, "--gemm", options.gemm, "G",
      "blas (default) or exact: sums that do not depend on the tensor split");
  add(app, "--norm", options.norm, "N", "layer (default) or rms");
  add(app, "--mlp", options.mlp, "M", "gelu (default) or swiglu");
  app.add_flag("--rope", options.rope, "rotary instead of learned positions");
  app.add_flag("--qk-norm", options.qk_norm, "an RMS norm of every query and key");
  app.add_flag("--recompute", options.recompute,
               "keep only the inputs of transformer layers; backward runs their forward again");
  add(app, "--experts", options.experts, "N",
      "experts of each layer's mixture of experts (default 0: dense)");
  add(app, "--top-k", options.top_k, "N", "experts of each token (default 1)");
  app.add_flag("--fp8-weights", options.fp8_weights,
               "weights exist as the recipe's codes and their f32 masters only");
  add(app, "--eval-every", options.eval_every, "N",
      "evaluate on other batches before every Nth step (default 0: never)");
  add(app, "--save-every", options.save_every, "N", "save the state after every Nth step (default 0: never)");
  add(app, "--save-dir", options.save_dir, "DIR", "where --save-every writes DIR/iter_<steps done>");
  add(app, "--resume", options.resume, "DIR",
      "go on from a saved state, or from the newest in a --save-dir, up to --steps");
  add(app, "--preset", options.preset, "NAME",
      "a ready-made debug config instead of --config: " + preset_names());
  app.add_option("--inject", options.inject,
                 "plant a fault; may be repeated. Without iteration: always; without rank: on every rank\n" +
                     megatron::fault_help())
      ->type_name("FAULT@key=value,..")
      ->expected(1)
      ->take_all();
  add(app, "--seed", options.seed, "N", "of weights and batches (default 1)");
  add(app, "--perturb", options.perturb, "SEED",
      "add errors to the inputs of the layers, at random, of the size that GEMMs make which sum in another "
      "order "
      "(default 0: none): beside a run without, it shows how far rounding moves each statistic, for "
      "`amaxscope "
      "diff --perturbed`");
  add(app, "--dtype", options.dtype, "T", "compute dtype: f32 (default) or bf16");
  add(app, "--device", options.device, "D",
      "cpu (default) or cuda: linear layers (quantization, statistics, GEMMs, and amaxes over NCCL within "
      "tp) on the "
      "device that the rank has by its place on its machine; attention, norms, embedding, loss and Adam stay "
      "on the "
      "host, and operands and results are copied. Without --gemm exact and --inject. Not run on a GPU yet "
      "(docs/cuda.md)");
  add(app, "--unsupported-gemm", options.unsupported_gemm, "U",
      "with --device cuda: products that cuBLASLt does not have for this device are decoded and multiplied "
      "in f32, "
      "said once for each reason (decode, default), or end the job (refuse)");
  add(app, "--log-dir", options.log_dir, "DIR", "where logs go (default: amaxscope_logs/<date>-<time>)");
  app.add_option("--plugin", options.plugins, kPluginHelp)->type_name("FILE")->expected(1)->take_all();
  app.add_flag("--tensorboard", options.tensorboard,
               "with a debug config: TensorBoard event files too, in tensorboard/ under the log directory");
  app.add_flag("--watch-config", options.watch_config,
               "look at --config while training; an edited file takes effect on all ranks together");
  add(app, "--poll-every", options.poll_every, "N",
      "iterations between polls of the ranks, where something needs them (default: 1 when a feature has an "
      "action, else 10)");
  add(app, "--deadline", options.deadline, "SECONDS",
      "with a debug config: how long ranks may wait for one another before the job says who is where and "
      "ends "
      "(default 600)");
  app.add_flag(
      "--no-signals", options.no_signals,
      "leave SIGUSR1 alone. Without it, and with a debug config, SIGUSR1 (also to mpirun) writes the "
      "runtime's state on all ranks to events/ under the log directory at the next poll");
  app.add_flag("--json", options.json,
               "one JSON object on rank 0's standard output at the end, nothing else there");
}

void validate(const TrainOptions& options, int world_size) {
  require_one_of("--recipe", options.recipe, {"none", "delayed", "current", "mxfp8", "block", "nvfp4"});
  require_one_of("--gemm", options.gemm, {"blas", "exact"});
  require_one_of("--norm", options.norm, {"layer", "rms"});
  require_one_of("--mlp", options.mlp, {"gelu", "swiglu"});
  require_one_of("--dtype", options.dtype, {"f32", "bf16"});
  require_one_of("--device", options.device, {"cpu", "cuda"});
  require_one_of("--unsupported-gemm", options.unsupported_gemm, {"decode", "refuse"});
  AMAXSCOPE_CHECK(
      options.device == "cuda" || options.unsupported_gemm == "decode", ErrorCode::kUsage,
      "--unsupported-gemm {} is about --device cuda; on the CPU every product is multiplied as it is",
      options.unsupported_gemm);
  AMAXSCOPE_CHECK(options.device == "cpu" || options.gemm != "exact", ErrorCode::kUsage,
                  "--gemm exact goes with --device cpu: a device has no sums in f64 over codes");
  AMAXSCOPE_CHECK(options.device == "cpu" || options.inject.empty(), ErrorCode::kUsage,
                  "--inject goes with --device cpu: planted faults reach into codes and scales on the host");
  AMAXSCOPE_CHECK(options.preset.empty() || find_preset(options.preset) != nullptr, ErrorCode::kUsage,
                  "--preset {}: there are {}", options.preset, preset_names());
  AMAXSCOPE_CHECK(
      options.preset.empty() || options.config.empty(), ErrorCode::kUsage,
      "--preset and --config: give one; `amaxscope presets {}` prints the preset, to be put into a config",
      options.preset);

  require_at_least("--tp", options.tp, 1);
  require_at_least("--pp", options.pp, 1);
  require_at_least("--steps", options.steps, 1);
  require_at_least("--layers", options.layers, 1);
  require_at_least("--hidden", options.hidden, 1);
  require_at_least("--heads", options.heads, 1);
  require_at_least("--seq", options.sequence, 1);
  require_at_least("--batch", options.batch, 1);
  require_at_least("--micro-batches", options.micro_batches, 1);
  require_at_least("--experts", options.experts, 0);
  require_at_least("--top-k", options.top_k, 1);
  require_at_least("--eval-every", options.eval_every, 0);
  require_at_least("--save-every", options.save_every, 0);
  require_at_least("--poll-every", options.poll_every, 0);
  require_at_least("--deadline", options.deadline, 1);
  AMAXSCOPE_CHECK(!options.watch_config || !options.config.empty(), ErrorCode::kUsage,
                  "--watch-config needs --config: there is no file to watch");
  AMAXSCOPE_CHECK(!options.tensorboard || !options.config.empty() || !options.preset.empty(),
                  ErrorCode::kUsage,
                  "--tensorboard needs --config or --preset: without one nothing is recorded");
  AMAXSCOPE_CHECK(!options.tensorboard || has_tensorboard_sink(), ErrorCode::kUsage,
                  "--tensorboard: this build has no protobuf; install libprotobuf-dev and protobuf-compiler "
                  "(launch/install_deps) and build again");
  AMAXSCOPE_CHECK((options.save_every > 0) == !options.save_dir.empty(), ErrorCode::kUsage,
                  "--save-every and --save-dir go together");
  AMAXSCOPE_CHECK(options.top_k <= std::max<std::int64_t>(options.experts, 1), ErrorCode::kUsage,
                  "--top-k {} of --experts {}; a token cannot have more than there are", options.top_k,
                  options.experts);
  AMAXSCOPE_CHECK(!options.fp8_weights || options.recipe != "none", ErrorCode::kUsage,
                  "--fp8-weights needs a recipe, and --recipe is none");
  AMAXSCOPE_CHECK(std::isfinite(options.learning_rate) && options.learning_rate > 0.0, ErrorCode::kUsage,
                  "--learning-rate {}: must be a positive number", options.learning_rate);

  require_divisible("the job's number of ranks", world_size, "--tp", options.tp);
  AMAXSCOPE_CHECK(world_size / options.tp % options.pp == 0, ErrorCode::kUsage,
                  "the job's number of ranks {} is not divisible by --tp {} times --pp {}", world_size,
                  options.tp, options.pp);
  require_divisible("--layers", options.layers, "--pp", options.pp);
  require_divisible("--heads", options.heads, "--tp", options.tp);
  require_divisible("--hidden", options.hidden, "--heads", options.heads);
  AMAXSCOPE_CHECK(!options.rope || options.hidden / options.heads % 2 == 0, ErrorCode::kUsage,
                  "--rope turns pairs, but --hidden {} / --heads {} gives heads of {} elements",
                  options.hidden, options.heads, options.hidden / options.heads);
  require_whole_blocks(options);
  if (options.sequence_parallel) require_divisible("--seq", options.sequence, "--tp", options.tp);
}

std::map<std::string, std::string> described(const TrainOptions& options) {
  return {{"data", fmt::format("{}", fmt::join(options.data, " "))},
          {"recipe", options.recipe},
          {"tp", fmt::format("{}", options.tp)},
          {"pp", fmt::format("{}", options.pp)},
          {"sequence-parallel", options.sequence_parallel ? "true" : "false"},
          {"steps", fmt::format("{}", options.steps)},
          {"layers", fmt::format("{}", options.layers)},
          {"hidden", fmt::format("{}", options.hidden)},
          {"heads", fmt::format("{}", options.heads)},
          {"seq", fmt::format("{}", options.sequence)},
          {"batch", fmt::format("{}", options.batch)},
          {"micro-batches", fmt::format("{}", options.micro_batches)},
          {"learning-rate", fmt::format("{}", options.learning_rate)},
          {"gemm", options.gemm},
          {"norm", options.norm},
          {"mlp", options.mlp},
          {"rope", options.rope ? "true" : "false"},
          {"qk-norm", options.qk_norm ? "true" : "false"},
          {"experts", fmt::format("{}", options.experts)},
          {"top-k", fmt::format("{}", options.top_k)},
          {"fp8-weights", options.fp8_weights ? "true" : "false"},
          {"plugin", fmt::format("{}", fmt::join(options.plugins, " "))},
          {"preset", options.preset},
          {"resume", options.resume},
          {"save-every", fmt::format("{}", options.save_every)},
          {"save-dir", options.save_dir},
          {"eval-every", fmt::format("{}", options.eval_every)},
          {"recompute", options.recompute ? "true" : "false"},
          {"watch-config", options.watch_config ? "true" : "false"},
          {"deadline", fmt::format("{}", options.deadline)},
          {"poll-every", fmt::format("{}", options.poll_every)},
          {"no-signals", options.no_signals ? "true" : "false"},
          {"inject", fmt::format("{}", fmt::join(options.inject, " "))},
          {"seed", fmt::format("{}", options.seed)},
          {"perturb", fmt::format("{}", options.perturb)},
          {"dtype", options.dtype},
          {"device", options.device},
          {"unsupported-gemm", options.unsupported_gemm}};
}

}  // namespace amaxscope::launch

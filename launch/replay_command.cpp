// `amaxscope replay`: dumped tensors through the debug runtime, as in the run that dumped them.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "launch/commands.hpp"
#include "launch/job.hpp"
#include "launch/log_directory.hpp"
#include "launch/plugins.hpp"
#include "launch/replay_index.hpp"
#include "launch/replay_layers.hpp"
#include "launch/ticker.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/session.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope::launch {

namespace {

struct ReplayOptions {
  std::string dump;
  std::string config;
  std::string recipe;  ///< empty: that of the dump
  std::string log_dir;
  std::vector<std::string> plugins;
  std::uint64_t seed = 1;
  bool json = false;
};

class Replay {
 public:
  Replay(Job& job, const ReplayOptions& options) : job_(job), options_(options) {}

  ExitStatus run() {
    prepare();
    build();
    feed();
    summarize();
    return kDone;
  }

 private:
  struct Layer {
    LayerDescription description;
    megatron::LayerQuantizers quantizers;
    LayerHandle handle;
  };

  void prepare() {
    job_.agree([&] { environment_ = Environment::from_process(); });
    job_.agree_on("--recipe", options_.recipe);
    job_.agree_on("--seed", fmt::format("{}", options_.seed));
    job_.agree([&] {
      if (options_.recipe.empty()) return;
      recipe_ = parse_recipe(options_.recipe);
      AMAXSCOPE_CHECK(recipe_.has_value(), ErrorCode::kUsage,
                      "--recipe {}: unknown; allowed: none, delayed, current, mxfp8, block, nvfp4",
                      options_.recipe);
    });
    job_.agree([&] { load_plugins(options_.plugins, job_.is_leader(), registry_); });
    job_.agree([&] { folder_ = find_dump(options_.dump); });
    job_.agree([&] {
      const int folders = count_dump_ranks(folder_);
      AMAXSCOPE_CHECK(
          folders == job_.world().size(), ErrorCode::kInput,
          "{}: is the dump of {} rank{}, and {} would replay it; start one rank for each folder: mpirun "
          "-n {}",
          folder_.string(), folders, folders == 1 ? "" : "s", job_.world().size(), folders);
    });
    job_.agree([&] { own_ = read_rank_dump(folder_, job_.world().rank()); });
    log_dir_ = job_.leaders_text(options_.log_dir.empty() ? default_log_directory() : options_.log_dir);
    job_.agree([&] {
      if (job_.is_leader()) require_fresh_log_directory(log_dir_);
    });
    job_.agree([&] { exchange(); });
  }

  void exchange() {
    std::vector<RankDump> by_rank;
    for (const std::string& text :
         all_gather_text(job_.world(), to_text(own_), {Traffic::kTrainer, "contents of the dump"})) {
      by_rank.push_back(rank_dump_from(text));
    }
    index_.emplace(std::move(by_rank));
    for (const DumpedPart& part : own_.parts) files_[part.metadata.identity] = part.file;
    AMAXSCOPE_CHECK(!index_->iterations().empty(), ErrorCode::kInput,
                    "{}: holds nothing to replay: {} files, none with high_precision", folder_.string(),
                    index_->without_original());
  }

  void build() {
    job_.agree([&] {
      const ReplayGroups& groups = index_->groups(job_.world().rank());
      const auto split = [&](const std::vector<int>& ranks) {
        return job_.world().split(ranks.front(), job_.world().rank(),
                                  {Traffic::kTrainer, "group of the dump"});
      };
      tp_ = split(groups.tp);
      dp_ = split(groups.dp);
      stage_ = split(groups.stage);
    });
    // Before the session, which makes the log directory.
    job_.agree([&] { describe_layers(); });
    job_.agree([&] {
      SessionOptions session;
      session.config_path = options_.config;
      session.log_dir = log_dir_;
      session.first_iteration = index_->iterations().front();
      session.failure_policy = FailurePolicy::kAbort;
      session.run_options = {{"replay", folder_.string()}, {"recipe", options_.recipe}};
      session.environment = environment_;
      Communicator* const stage = index_->ranks_stand_alone() ? nullptr : stage_.get();
      session_.emplace(registry_, SessionGroups{&job_.world(), tp_.get(), dp_.get(), stage}, session);
    });
    job_.agree([&] { register_layers(); });
  }

  void describe_layers() {
    for (const auto& [name, parts] : index_->layers(job_.world().rank())) {
      layers_[name].description = replayed_layer(name, parts, tp_->size() > 1 ? tp_.get() : nullptr, recipe_);
    }
  }

  void register_layers() {
    delayed_.emplace(DelayedScalingOptions{}, stage_.get());
    for (auto& [name, layer] : layers_) {
      megatron::LayerContext context;
      context.tp = layer.description.tp_group;
      context.recipe = layer.description.recipe;
      context.delayed = &*delayed_;
      context.dtype = layer.description.compute_dtype;
      context.sequence_parallel = layer.description.sequence_parallel;
      context.seed = options_.seed;
      layer.quantizers = megatron::make_operand_quantizers(context, layer.description);
      layer.handle = session_->layer(layer.description, layer.quantizers.operands);
    }
  }

  void feed() {
    const std::vector<std::int64_t> iterations = index_->iterations();
    Ticker ticker(stderr, "iterations", static_cast<std::int64_t>(iterations.size()));
    job_.agree([&] {
      for (const std::int64_t iteration : iterations) {
        while (session_->iteration() < iteration) session_->step();
        for (const auto& [identity, parts] : index_->tensors(iteration)) feed_one(identity, parts);
        delayed_->update();
        session_->step();
        if (job_.is_leader()) ticker.advance();
      }
      session_->close();
    });
    job_.agree([&] {
      const std::optional<std::string>& failure = session_->write_failure();
      AMAXSCOPE_CHECK(!failure, ErrorCode::kIo, "the replay is done, but its logs are not complete: {}",
                      *failure);
    });
  }

  /// Where another rank of a tensor-parallel group has a part that this one lacks, it takes part with an
  /// empty one: reductions are over the whole group.
  void feed_one(const DumpIdentity& identity, const ReplayIndex::Parts& parts) {
    const int rank = job_.world().rank();
    const auto own = parts.find(rank);
    const DumpedPart* part = own != parts.end() ? own->second : nullptr;
    for (const auto& [holder, other] : parts) {
      const std::vector<int>& group = other->metadata.tp_ranks;
      const bool partner = group.size() > 1 && std::ranges::find(group, rank) != group.end();
      if (part == nullptr && partner && !other->metadata.observed) part = other;
    }
    if (part == nullptr) return;
    Tensor x = own != parts.end() ? read(identity) : Tensor(part->dtype, Shape{0, part->shape.cols()});
    const TensorMoment moment{identity.phase, identity.microbatch};
    fed_ += static_cast<std::int64_t>(own != parts.end());
    if (part->metadata.observed) {
      session_->observe(identity.layer, identity.tensor, x, part->metadata.layout, moment);
      return;
    }
    Layer& layer = layers_.at(identity.layer);
    const TensorKind tensor = parse_tensor(identity.tensor).value();
    DebugQuantizer* const debug = layer.handle.active() ? layer.handle.quantizer(tensor) : nullptr;
    if (is_result(tensor)) {
      if (debug != nullptr) debug->process_gemm_output(x, moment);
      return;
    }
    Quantizer* quantizer = debug != nullptr ? debug : parent_of(layer, tensor);
    if (quantizer != nullptr)
      static_cast<void>(quantizer->quantize(x, {.rowwise = true, .columnwise = true}, moment));
  }

  static Quantizer* parent_of(const Layer& layer, TensorKind tensor) {
    const OperandQuantizers& operands = layer.quantizers.operands;
    if (tensor == TensorKind::kActivation) return operands.activation.get();
    return tensor == TensorKind::kWeight ? operands.weight.get() : operands.gradient.get();
  }

  [[nodiscard]] Tensor read(const DumpIdentity& identity) const {
    const SafetensorsFile file(folder_ / fmt::format("rank_{}", job_.world().rank()) / files_.at(identity));
    return file.read(file.at("high_precision"));
  }

  void summarize() {
    const TrafficCounters& counters = job_.world().counters();
    const std::vector<std::int64_t> iterations = index_->iterations();
    Tensor tensors = Tensor::of<std::int64_t>({fed_}, Shape{1});
    job_.world().all_reduce(tensors, ReduceOp::kSum, {Traffic::kTrainer, "tensors fed"});
    const std::int64_t fed = tensors.values<std::int64_t>()[0];
    if (!job_.is_leader()) return;
    if (options_.json) {
      const nlohmann::ordered_json json = {
          {"iterations", iterations.size()},
          {"first_iteration", iterations.front()},
          {"last_iteration", iterations.back()},
          {"tensors", fed},
          {"without_original", index_->without_original()},
          {"world", job_.world().size()},
          {"tp", tp_->size()},
          {"recipe", options_.recipe.empty() ? "as dumped" : options_.recipe},
          {"collectives",
           {{"trainer", counters.calls(Traffic::kTrainer)},
            {"recipe", counters.calls(Traffic::kRecipe)},
            {"debug", counters.calls(Traffic::kDebug)}}},
          {"log_dir", log_dir_}};
      fmt::print("{}\n", json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      fmt::print("{} tensors of {} iterations ({} to {}) on {} rank{} (tp {}), recipe {}\n", fed,
                 iterations.size(), iterations.front(), iterations.back(), job_.world().size(),
                 job_.world().size() == 1 ? "" : "s", tp_->size(),
                 options_.recipe.empty() ? "as dumped" : options_.recipe);
      if (index_->without_original() > 0) {
        fmt::print("{} files hold no high_precision and were left out\n", index_->without_original());
      }
      fmt::print("logs in {}\n", log_dir_);
    }
    AMAXSCOPE_CHECK(std::fflush(stdout) == 0, ErrorCode::kIo, "standard output cannot be written");
  }

  Job& job_;
  const ReplayOptions& options_;
  Environment environment_;
  std::optional<RecipeKind> recipe_;
  std::filesystem::path folder_;
  std::string log_dir_;
  RankDump own_;
  std::map<DumpIdentity, std::string> files_;
  std::optional<ReplayIndex> index_;
  std::int64_t fed_ = 0;
  // In the order in which each needs the one before.
  FeatureRegistry registry_ = builtin_features();
  std::unique_ptr<Communicator> tp_;
  std::unique_ptr<Communicator> dp_;
  std::unique_ptr<Communicator> stage_;
  std::optional<DelayedScalingState> delayed_;
  std::optional<DebugSession> session_;
  std::map<std::string, Layer> layers_;
};

}  // namespace

Command add_replay(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "replay",
      "under mpirun: feeds dumped tensors through the debug runtime, under another config or recipe");
  auto options = std::make_shared<ReplayOptions>();
  subcommand->add_option("DUMP_DIR", options->dump, "a log directory with tensor_dumps, or that folder")
      ->required();
  subcommand->add_option("--config", options->config, "the debug config to replay under")
      ->type_name("YAML")
      ->required();
  subcommand
      ->add_option("--recipe", options->recipe,
                   "none, delayed, current, mxfp8, block, nvfp4 (default: the recipe of the dump)")
      ->type_name("R");
  subcommand
      ->add_option("--log-dir", options->log_dir,
                   "where the logs go (default: a new folder in amaxscope_logs)")
      ->type_name("DIR");
  subcommand->add_option("--plugin", options->plugins, kPluginHelp)
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  subcommand->add_option("--seed", options->seed, "of stochastic rounding, as `train` was given (default 1)")
      ->type_name("N");
  subcommand->add_flag("--json", options->json, "one JSON object on standard output at the end");
  subcommand->footer(
      "One rank for each folder rank_R. Tensors are fed by iteration, micro-batch, phase (forward, "
      "recompute,\n"
      "backward, eval) and name, over the groups that the dump names; at the end of an iteration the amax\n"
      "histories of delayed scaling roll and the statistics are reduced, as in a live run.");
  return {.app = subcommand, .run_in_job = [options](Job& job) { return Replay(job, *options).run(); }};
}

}  // namespace amaxscope::launch

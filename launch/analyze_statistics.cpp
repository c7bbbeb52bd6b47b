#include "launch/analyze_statistics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "runtime/config/diagnostics.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::string_view kTensorStats = "LogTensorStats";
constexpr std::string_view kFp8Stats = "LogFp8TensorStats";
constexpr std::string_view kNvfp4Stats = "LogNvfp4TensorStats";
constexpr std::string_view kColumnwise = "_columnwise";

const std::vector<std::string> kDefaultTensorStats = {"numel",   "nonzero",  "nan",          "inf", "min",
                                                      "max",     "mean",     "std",          "rms", "l1_norm",
                                                      "l2_norm", "cur_amax", "dynamic_range"};
const std::vector<std::string> kDefaultErrorStats = {
    "underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse", "sqnr", "cosine", "max_error"};

struct Prefix {
  RecipeKind recipe;
  std::string_view text;  ///< in front of a statistic's name in the log
  std::string_view feature;
};
constexpr std::array<Prefix, 5> kPrefixes = {{{RecipeKind::kDelayed, "fp8_delayed_scaling_", kFp8Stats},
                                              {RecipeKind::kCurrent, "fp8_current_scaling_", kFp8Stats},
                                              {RecipeKind::kMxfp8, "mxfp8_", kFp8Stats},
                                              {RecipeKind::kBlock, "fp8_block_scaling_", kFp8Stats},
                                              {RecipeKind::kNvfp4, "nvfp4_", kNvfp4Stats}}};

const Prefix& prefix_of(RecipeKind recipe) { return *std::ranges::find(kPrefixes, recipe, &Prefix::recipe); }

bool has_blocks(RecipeKind recipe) {
  return recipe != RecipeKind::kDelayed && recipe != RecipeKind::kCurrent;
}

std::vector<std::string> statistics_of(const FeatureRegistry& registry, std::string_view feature) {
  std::vector<std::string> names;
  const FeatureEntry* entry = registry.find(feature, false);
  if (entry == nullptr) return names;
  for (const StatSchema& statistic : entry->schema.statistics) names.push_back(statistic.name);
  return names;
}

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

std::string without_direction(std::string word) {
  if (word.ends_with(kColumnwise)) word.resize(word.size() - kColumnwise.size());
  return word;
}

}  // namespace

TensorAnalysis::TensorAnalysis(std::vector<RecipeKind> recipes, std::vector<std::string> stats, TensorKind as)
    : registry_(builtin_features()), as_(as) {
  const std::vector<std::string> of_tensors = statistics_of(registry_, kTensorStats);
  const std::vector<std::string> of_fp8 = statistics_of(registry_, kFp8Stats);
  const std::vector<std::string> of_nvfp4 = statistics_of(registry_, kNvfp4Stats);
  if (stats.empty()) {
    stats = kDefaultTensorStats;
    stats.insert(stats.end(), kDefaultErrorStats.begin(), kDefaultErrorStats.end());
  }
  std::map<std::string_view, std::vector<std::string>> asked;
  for (const std::string& stat : stats) {
    const std::string bare = without_direction(stat);
    if (contains(of_tensors, stat)) {
      asked[kTensorStats].push_back(stat);
      continue;
    }
    std::vector<std::string> known = of_tensors;
    known.insert(known.end(), of_fp8.begin(), of_fp8.end());
    AMAXSCOPE_CHECK(contains(of_fp8, bare) || contains(of_nvfp4, bare), ErrorCode::kUsage,
                    "--stats {}: unknown statistic{}", stat, suggestion(bare, known));
    for (const RecipeKind recipe : recipes) {
      const Prefix& prefix = prefix_of(recipe);
      // One scale has neither directions nor blocks; the features say so, but here it was asked for of all
      // recipes at once.
      if (bare != stat && !has_blocks(recipe)) continue;
      const bool own = prefix.feature == kNvfp4Stats;
      if (contains(own ? of_nvfp4 : of_fp8, bare)) {
        asked[prefix.feature].push_back((own ? "" : std::string(prefix.text)) + stat);
      }
    }
  }
  delayed_ = std::ranges::find(recipes, RecipeKind::kDelayed) != recipes.end();
  config_ = "analyze:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine:\n";
  for (const auto& [feature, names] : asked) {
    if (registry_.find(feature, false) == nullptr) continue;
    // The first iteration of two is for the history alone.
    config_ += fmt::format("    {}: {{enabled: True, start_step: {}, tensors: [{}], stats: [\"{}\"]}}\n",
                           feature, delayed_ ? 1 : 0, to_string(as), fmt::join(names, "\", \""));
  }
}

std::vector<AnalyzeRow> TensorAnalysis::rows(const std::string& file, const std::string& tensor,
                                             const TensorView& x) const {
  std::vector<AnalyzeRow> rows;
  // What delayed scaling does to a tensor is what its history makes of it: with the tensor's own amax in it.
  const std::int64_t last = delayed_ ? 1 : 0;
  SessionOptions options;
  options.config_text = config_;
  options.failure_policy = FailurePolicy::kAbort;
  options.environment.log_level = "error";  // what a recipe does not have is a gap in the table
  options.extra_sinks.push_back(make_callback_sink([&](const StatRecord& record) {
    if (record.iteration != last) return;
    for (const StatValue& stat : record.stats) {
      AnalyzeRow row{file,      tensor,     std::string(to_string(RecipeKind::kNone)),
                     stat.name, stat.value, stat.flags};
      for (const Prefix& prefix : kPrefixes) {
        if (!stat.name.starts_with(prefix.text)) continue;
        row.recipe = to_string(prefix.recipe);
        row.stat = stat.name.substr(prefix.text.size());
      }
      rows.push_back(std::move(row));
    }
  }));
  DebugSession session(registry_, SessionGroups{}, options);
  LayerDescription layer;
  layer.name = tensor.empty() ? "tensor" : tensor;
  layer.compute_dtype = x.dtype();
  const LayerHandle handle = session.layer(layer);
  for (std::int64_t iteration = 0; iteration <= last; ++iteration) {
    if (DebugQuantizer* quantizer = handle.quantizer(as_)) {
      static_cast<void>(
          quantizer->quantize(x, {.rowwise = true, .columnwise = true}, {.phase = training_phase(as_)}));
    }
    session.step();
  }
  session.close();
  std::ranges::stable_sort(rows, {}, [](const AnalyzeRow& row) { return parse_recipe(row.recipe); });
  return rows;
}

}  // namespace amaxscope::launch

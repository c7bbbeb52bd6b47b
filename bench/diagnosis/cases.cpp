#include "bench/diagnosis/cases.hpp"

namespace amaxscope::diagnosis {

namespace {

using report::Outcome;

constexpr auto kFound = Outcome::kFound;
constexpr std::int64_t kDue = 5;  ///< the preset measures every five iterations
const std::string kQkv = "decoder.layers.2.self_attention.linear_qkv";
const std::string kProj = "decoder.layers.1.self_attention.linear_proj";
const std::string kFc1 = "decoder.layers.1.mlp.linear_fc1";
const std::string kFc2 = "decoder.layers.2.mlp.linear_fc2";

std::vector<std::string> recipe(const std::string& name, const std::string& fault,
                                std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--recipe", name});
  if (!fault.empty()) more.insert(more.end(), {"--inject", fault});
  return more;
}

Case clean(const std::string& id, std::vector<std::string> options, int ranks = 2, std::string yaml = {}) {
  return {.id = "clean " + id, .ranks = ranks, .options = std::move(options), .extra_yaml = std::move(yaml)};
}

std::vector<Case> faults() {
  return {
      {.id = "P01",
       .options = recipe("delayed", "amax_over_dp"),
       .outcome = kFound,
       .kind = "wrong_reduction_group",
       .layer = kQkv,
       .tensor = "activation",
       .several = true,
       .iteration = 1},
      {.id = "P02",
       .options = recipe("current", "skip_amax_reduction@layer=" + kQkv + ",rank=1"),
       .outcome = kFound,
       .kind = "foreign_scale",
       .layer = kQkv,
       .tensor = "activation",
       .at_ranks = {1},
       // The rank that skips the maximum may hold it itself in the first steps.
       .when_it_took_effect = true},
      {.id = "P03",
       .options = recipe("delayed", "stale_weight@layer=" + kFc1 + ",iteration=43,microbatch=1",
                         {"--micro-batches", "2"}),
       .outcome = kFound,
       .kind = "stale_weight",
       .layer = kFc1,
       .tensor = "weight",
       .at_ranks = {0, 1},
       .iteration = 43},
      {.id = "P05",
       .options = recipe("mxfp8", "stale_columnwise@layer=" + kFc2 + ",iteration=37"),
       .outcome = kFound,
       .kind = "copies_differ",
       .layer = kFc2,
       .tensor = "weight",
       .at_ranks = {0, 1},
       .iteration = 37},
      {.id = "P07",
       .options = recipe("current", "recompute_in_bf16@iteration=53", {"--recompute"}),
       .outcome = kFound,
       .kind = "recompute_differs",
       .layer = kQkv,
       .tensor = "activation",
       .several = true,
       .at_ranks = {0, 1},
       .iteration = 53},
      {.id = "P08",
       .options = recipe("mxfp8", "e5m2_gradients"),
       .outcome = kFound,
       .kind = "format",
       .layer = kFc1,
       .tensor = "gradient",
       .several = true},
      {.id = "P09",
       .options = recipe("mxfp8", "scale_rounded_down@iteration=40"),
       .outcome = kFound,
       .kind = "scale_too_large",
       .layer = kFc1,
       .tensor = "activation",
       .several = true,
       .at_ranks = {0, 1},
       .iteration = 40},
      {.id = "P11",
       .options =
           recipe("delayed", "grow_channel@layer=" + kFc1 + ",channel=70,iteration=30", {"--mlp", "swiglu"}),
       .outcome = kFound,
       .kind = "outlier_channel",
       .layer = "decoder.layers.1.mlp.linear_fc2",
       .tensor = "activation",
       .at_ranks = {0},
       .iteration = 30,
       .within = kDue},
      {.id = "P13",
       .options = recipe("nvfp4", "fixed_rounding_seed@iteration=50"),
       .outcome = kFound,
       .kind = "rounding_repeats",
       .layer = kFc1,
       .tensor = "gradient",
       .several = true,
       .iteration = 50,
       .within = kDue},
      {.id = "P14",
       .options = recipe("delayed", "skip_gradient_reduction@iteration=20"),
       .outcome = kFound,
       .kind = "replicas_differ",
       .layer = "decoder.final_layernorm.weight",
       .tensor = "update",
       .iteration = 20},
      {.id = "P17",
       .options = recipe("mxfp8", "overwrite_columnwise@layer=" + kProj + ",rank=1,iteration=41"),
       .outcome = kFound,
       .kind = "nonfinite",
       .layer = kProj,
       .tensor = "weight",
       .at_ranks = {1},
       .iteration = 41},
      {.id = "P19",
       .options = recipe("delayed", "no_master_weights", {"--dtype", "bf16"}),
       .outcome = kFound,
       .kind = "lost_updates",
       .layer = "decoder.final_layernorm.weight",
       .tensor = "update",
       .several = true,
       .within = kDue},
      {.id = "P20",
       .options = recipe("delayed", "adam_lag@iteration=70"),
       .outcome = Outcome::kNotPrecision,
       .kind = "optimizer_spike",
       .iteration = 70},
      {.id = "nan",
       .options = recipe("delayed", "nan@layer=" + kFc1 + ",tensor=gradient,rank=1,iteration=22"),
       .outcome = kFound,
       .kind = "nonfinite",
       .layer = kFc1,
       .tensor = "gradient",
       .at_ranks = {1},
       .iteration = 22},
      {.id = "scale_off",
       .options = recipe("current", "scale_off@layer=" + kFc1 + ",tensor=weight,k=3,iteration=22"),
       .outcome = kFound,
       .kind = "scale_too_large",
       .layer = kFc1,
       .tensor = "weight",
       .at_ranks = {0, 1},
       .iteration = 22},
      {.id = "scale_off (delayed)",
       .options =
           recipe("delayed", "scale_off@layer=" + kFc1 + ",tensor=activation,k=-4,rank=1,iteration=33"),
       .outcome = kFound,
       .kind = "scale_not_from_history",
       .layer = kFc1,
       .tensor = "activation",
       .at_ranks = {1},
       .iteration = 33},
  };
}

std::vector<Case> clean_runs() {
  std::vector<Case> runs;
  for (const char* name : {"none", "delayed", "current", "mxfp8", "block", "nvfp4"}) {
    runs.push_back(clean(name, recipe(name, "")));
  }
  runs.push_back(clean("bf16", recipe("delayed", "", {"--dtype", "bf16"})));
  runs.push_back(
      clean("swiglu, rope, rms", recipe("delayed", "", {"--mlp", "swiglu", "--rope", "--norm", "rms"})));
  runs.push_back(clean("recompute", recipe("current", "", {"--recompute"})));
  runs.push_back(
      clean("micro-batches, fp8 weights", recipe("mxfp8", "", {"--micro-batches", "2", "--fp8-weights"})));
  runs.push_back(clean("experts", recipe("current", "", {"--experts", "4"})));
  runs.push_back(clean("evaluation", recipe("delayed", "", {"--eval-every", "10"})));
  runs.push_back(clean("plateau", recipe("delayed", "", {"--learning-rate", "0.000001"})));
  runs.push_back(clean("pp 2", recipe("delayed", "", {"--tp", "1", "--pp", "2", "--micro-batches", "2"})));
  runs.push_back(clean("tp 1", recipe("delayed", "", {"--tp", "1"}), 1));
  runs.push_back(clean("tp 4", recipe("current", "", {"--tp", "4"}), 4));
  runs.push_back(clean("first layer in high precision", recipe("mxfp8", ""), 2, R"(
on_purpose:
  enabled: True
  layers:
    layer_name_regex_pattern: decoder\.layers\.1\.
  transformer_engine:
    DisableQuantizationLayer:
      enabled: True
)"));
  return runs;
}

}  // namespace

std::vector<Case> cases() {
  std::vector<Case> all = faults();
  for (Case& run : clean_runs()) all.push_back(std::move(run));
  return all;
}

}  // namespace amaxscope::diagnosis

#include "launch/train_setup.hpp"

#include <algorithm>

#include "kernels/gemm.hpp"
#include "launch/machine.hpp"

namespace amaxscope::launch {

void share_cores(const Job& job, Environment& environment) {
  if (!environment.threads) environment.threads = std::max(1, usable_cores() / job.machine().ranks);
  set_gemm_threads(*environment.threads);
}

void agree_on_options(Job& job, const TrainOptions& options) {
  for (const auto& [name, value] : described(options)) job.agree_on("--" + name, value);
  // Which file it is may differ; the session compares what is in it.
  job.agree_on("the use of --config", options.config.empty() ? "no" : "yes");
}

megatron::TrainerOptions trainer_options(const TrainOptions& options) {
  megatron::TrainerOptions result;
  result.model.layers = options.layers;
  result.model.hidden = options.hidden;
  result.model.heads = options.heads;
  result.model.sequence = options.sequence;
  result.model.norm.kind =
      options.norm == "rms" ? megatron::NormKind::kRmsNorm : megatron::NormKind::kLayerNorm;
  result.model.mlp = options.mlp == "swiglu" ? megatron::MlpKind::kSwiglu : megatron::MlpKind::kGelu;
  result.model.rotary_positions = options.rope;
  result.model.qk_norm = options.qk_norm;
  result.model.recompute = options.recompute;
  result.model.experts = static_cast<int>(options.experts);
  result.model.top_k = options.top_k;
  result.fp8_weights = options.fp8_weights;
  result.eval_every = options.eval_every;
  result.recipe = parse_recipe(options.recipe).value();
  result.dtype = options.dtype == "bf16" ? DType::kBF16 : DType::kF32;
  result.sequence_parallel = options.sequence_parallel;
  result.arithmetic =
      options.gemm == "exact" ? megatron::GemmArithmetic::kExact : megatron::GemmArithmetic::kBlas;
  result.micro_batches = static_cast<int>(options.micro_batches);
  result.seed = options.seed;
  result.model.perturb = options.perturb;
  result.learning_rate.peak = options.learning_rate;
  result.learning_rate.warmup_steps = std::min<std::int64_t>(20, options.steps / 10);
  result.learning_rate.total_steps = options.steps;
  result.learning_rate.minimum = options.learning_rate / 10;
  result.learning_rate.decay = megatron::Decay::kCosine;
  result.clip_norm = 1.0;
  for (const std::string& fault : options.inject) result.faults.push_back(megatron::parse_fault(fault));
  return result;
}

megatron::TextData read_text(const TrainOptions& options) {
  std::vector<std::filesystem::path> files(options.data.begin(), options.data.end());
  if (files.empty()) files = megatron::TextData::default_files();
  return megatron::TextData::from_files(files);
}

}  // namespace amaxscope::launch

#include "megatron/model_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>

#include "collectives/loopback_communicator.hpp"
#include "kernels/cast.hpp"
#include "megatron/gradients.hpp"

namespace amaxscope::megatron::testing {

Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  Tensor values(DType::kF64, shape);
  for (double& value : values.values<double>())
    value = static_cast<double>(generator() >> 11) * 0x1p-52 - 1.0;
  if (dtype == DType::kF64) return values;
  Tensor result(dtype, shape);
  convert(values.view(), result);
  return result;
}

Batch random_batch(std::uint64_t seed, std::int64_t tokens, std::int64_t vocabulary) {
  std::mt19937_64 generator(seed);
  const auto draw = [&] {
    return static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(vocabulary));
  };
  Batch batch;
  for (std::int64_t i = 0; i < tokens; ++i) {
    batch.inputs.push_back(draw());
    batch.targets.push_back(draw());
  }
  return batch;
}

Batch joined(std::span<const Batch> parts, std::int64_t sequence) {
  Batch all;
  for (std::int64_t s = 0; s < sequence; ++s) {
    for (const Batch& part : parts) {
      const auto sequences = static_cast<std::int64_t>(part.inputs.size()) / sequence;
      for (std::int64_t b = 0; b < sequences; ++b) {
        const auto index = static_cast<std::size_t>(s * sequences + b);
        all.inputs.push_back(part.inputs[index]);
        all.targets.push_back(part.targets[index]);
      }
    }
  }
  return all;
}

std::vector<double> to_doubles(const TensorView& values) {
  Tensor wide(DType::kF64, values.shape());
  convert(values, wide);
  const auto all = wide.values<double>();
  return {all.begin(), all.end()};
}

std::vector<double> whole(const TensorView& part, Layout layout, Communicator* tp) {
  if (tp == nullptr || layout == Layout::kReplicated) return to_doubles(part);
  const std::int64_t ranks = tp->size();
  Tensor parts(part.dtype(), {ranks, part.rows(), part.cols()});
  tp->all_gather(part, parts, {Traffic::kDebug, "whole tensor"});
  const std::vector<double> by_rank = to_doubles(parts.view());
  if (layout == Layout::kShard0 || ranks == 1) return by_rank;
  std::vector<double> result(by_rank.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::int64_t row = 0; row < part.rows(); ++row) {
      const auto from = by_rank.begin() + (rank * part.rows() + row) * part.cols();
      std::copy_n(from, part.cols(), result.begin() + (row * ranks + rank) * part.cols());
    }
  }
  return result;
}

double relative_distance(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double distance = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    distance = std::max(distance, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
  }
  return largest == 0 ? distance : distance / largest;
}

GptOptions small_model() {
  return {
      .layers = 2, .hidden = 32, .heads = 4, .sequence = 8, .ffn_hidden = 0, .vocabulary = 64, .norm = {}};
}

ModelRun run_model(const RunOptions& options, Communicator* tp, std::span<const Batch> micro_batches) {
  LayerContext context = options.context;
  context.tp = tp;
  DelayedScalingState delayed({.history_length = 4}, options.amax_over_tp ? tp : nullptr);
  context.delayed = &delayed;
  Gpt model(context, options.model);
  ModelRun run;
  Gpt::Saved saved;
  int microbatch = 0;
  for (const Batch& batch : micro_batches) {
    const double tokens = static_cast<double>(batch.inputs.size() * micro_batches.size());
    run.loss += model.forward(batch, options.gradient_scale / tokens,
                              {.phase = Phase::kForward, .microbatch = microbatch}, &saved) /
                static_cast<double>(micro_batches.size());
    model.backward(microbatch++, saved);
  }
  delayed.update();
  model.complete_gradients();
  reduce_gradients(model.parameters(), tp, nullptr);
  for (Parameter* const parameter : model.parameters()) {
    run.gradients[parameter->name] = whole(parameter->gradient.view(), parameter->layout, tp);
  }
  for (std::size_t i = 0; i < delayed.size(); ++i) {
    run.slots[delayed.slot(i).name] = {delayed.slot(i).history.back(), delayed.slot(i).scale};
  }
  return run;
}

ModelRun run_model_on(int ranks, const RunOptions& options, std::span<const Batch> micro_batches) {
  std::vector<ModelRun> runs(static_cast<std::size_t>(ranks));
  run_loopback_ranks(ranks, [&](Communicator& tp) {
    runs[static_cast<std::size_t>(tp.rank())] = run_model(options, &tp, micro_batches);
  });
  for (const ModelRun& run : runs) {
    EXPECT_EQ(run.loss, runs.front().loss);
    EXPECT_EQ(run.gradients, runs.front().gradients) << "replicated gradients differ between ranks";
    if (options.amax_over_tp) {
      EXPECT_EQ(run.slots, runs.front().slots) << "scales differ between ranks";
    }
  }
  return runs.front();
}

}  // namespace amaxscope::megatron::testing

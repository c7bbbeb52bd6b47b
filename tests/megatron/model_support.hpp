// What the tests of layers, model and trainer share: inputs, whole tensors from their parts, one step of a
// model.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "megatron/gpt.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"

namespace amaxscope::megatron::testing {

/// Uniform in [-1, 1), a pure function of the seed.
Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed);
Batch random_batch(std::uint64_t seed, std::int64_t tokens, std::int64_t vocabulary);
/// Micro-batches of `sequence` tokens each as one batch, in [s, b] order.
Batch joined(std::span<const Batch> parts, std::int64_t sequence);

std::vector<double> to_doubles(const TensorView& values);
/// The whole tensor of which every rank of tp holds this part, in row-major order. Collective over tp.
std::vector<double> whole(const TensorView& part, Layout layout, Communicator* tp);

/// Largest |a - b| / max |b|; infinite when the sizes differ.
double relative_distance(std::span<const double> a, std::span<const double> b);

/// 2 layers, hidden 32, 4 heads, sequences of 8, vocabulary 64.
GptOptions small_model();

struct SlotState {
  std::uint32_t amax_bits = 0;  ///< the newest history entry
  float scale = 1.0F;
  friend bool operator==(const SlotState&, const SlotState&) = default;
};

/// What one rank knows after forward and backward of all micro-batches, with whole tensors.
struct ModelRun {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, SlotState> slots;  ///< after DelayedScalingState::update()
};

struct RunOptions {
  GptOptions model = small_model();
  LayerContext context;  ///< tp and delayed are filled in
  bool amax_over_tp = true;
  double gradient_scale = 1.0;  ///< times 1 / tokens
};

/// Builds the model on this rank, runs the micro-batches, reduces gradients over tp. Collective over tp
/// (null: one rank).
ModelRun run_model(const RunOptions& options, Communicator* tp, std::span<const Batch> micro_batches);
/// The same on `ranks` loopback ranks; rank 0's answer, after checking that all ranks have the same.
ModelRun run_model_on(int ranks, const RunOptions& options, std::span<const Batch> micro_batches);

}  // namespace amaxscope::megatron::testing

// What the C++ layers of megatron/ make of given tensors, for the tests of the adapter in Python: every
// case's inputs and results as .npy files for each rank, and the records of its session. usage:
// python_linear_numbers FOLDER RANKS
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "kernels/cast.hpp"
#include "megatron/counter_hash.hpp"
#include "megatron/layers/linear.hpp"
#include "runtime/storage/npy.hpp"

namespace amaxscope::megatron {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kInputs = 128;
constexpr std::int64_t kOutputs = 128;
constexpr int kSteps = 2;
constexpr int kMicrobatches = 2;

constexpr const char* kConfig = R"(all:
  enabled: True
  layers:
    layer_types: [all]
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [cur_amax, l1_norm, mean]
      freq: 1
)";

struct Case {
  std::string_view name;
  ParallelMode mode;
  bool sequence_parallel;
  RecipeKind recipe;
  DType dtype;
};
constexpr std::array kCases = {
    Case{"column", ParallelMode::kColumn, false, RecipeKind::kCurrent, DType::kF32},
    Case{"row", ParallelMode::kRow, false, RecipeKind::kCurrent, DType::kF32},
    Case{"column_sp", ParallelMode::kColumn, true, RecipeKind::kCurrent, DType::kF32},
    Case{"row_sp", ParallelMode::kRow, true, RecipeKind::kCurrent, DType::kF32},
    Case{"column_bf16", ParallelMode::kColumn, true, RecipeKind::kNone, DType::kBF16},
    Case{"row_mxfp8", ParallelMode::kRow, false, RecipeKind::kMxfp8, DType::kF32},
};

/// Of each rank, step and micro-batch other ones; with a scale that makes the ranks' amaxes differ.
Tensor made_up(DType dtype, Shape shape, std::uint64_t seed) {
  Tensor exact(DType::kF32, shape);
  std::uint64_t index = 0;
  for (float& value : exact.values<float>()) {
    value =
        static_cast<float>((2 * uniform(hash_words(seed, index++)) - 1) * static_cast<double>(1 + seed % 5));
  }
  Tensor result(dtype, shape);
  convert(exact, result);
  return result;
}

void write(const std::filesystem::path& folder, std::string_view name, const TensorView& tensor) {
  Tensor wide(DType::kF32, tensor.shape());
  convert(tensor, wide);
  write_npy(folder / fmt::format("{}.npy", name), wide);
}

void run_case(const Case& which, const std::filesystem::path& root, Communicator& world) {
  const auto rank = static_cast<std::uint64_t>(world.rank());
  const std::filesystem::path folder = root / which.name / fmt::format("rank_{}", rank);
  std::filesystem::create_directories(folder);
  const ProcessGroups groups(world, {.tp = world.size()});
  SessionOptions options;
  options.config_text = kConfig;
  options.log_dir = root / which.name;
  const FeatureRegistry registry = builtin_features();
  DebugSession session(registry, SessionGroups::from(groups), options);
  LayerContext context;
  context.tp = &groups.tp();
  context.recipe = which.recipe;
  context.dtype = which.dtype;
  context.sequence_parallel = which.sequence_parallel;
  context.session = &session;
  context.sequence = kTokens;
  Linear layer(context, which.mode,
               {.name = "decoder.layers.1.mlp.linear_fc1",
                .number = 1,
                .inputs = kInputs,
                .outputs = kOutputs,
                .bias = false});
  write(folder, "weight", layer.weight().compute.view());
  const bool column = which.mode == ParallelMode::kColumn;
  const std::int64_t slice = which.sequence_parallel ? kTokens / world.size() : kTokens;
  const Shape x_shape = column ? Shape{slice, kInputs} : Shape{kTokens, kInputs / world.size()};
  const Shape y_shape = column ? Shape{kTokens, kOutputs / world.size()} : Shape{slice, kOutputs};
  for (int step = 0; step < kSteps; ++step) {
    layer.weight().zero_gradient();
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      const std::string suffix = fmt::format("_{}_{}", step, microbatch);
      const auto number = static_cast<std::uint64_t>(10 * step + microbatch);
      // What is replicated over tp is the same on all ranks.
      const std::uint64_t x_rank = column && !which.sequence_parallel ? 0 : rank;
      const std::uint64_t dy_rank = !column && !which.sequence_parallel ? 0 : rank;
      const Tensor x = made_up(which.dtype, x_shape, 100 + 31 * number + 7 * x_rank);
      const Tensor dy = made_up(which.dtype, y_shape, 1000 + 31 * number + 7 * dy_rank);
      Linear::Saved saved;
      const Tensor y = layer.forward(x.clone(), {.phase = Phase::kForward, .microbatch = microbatch}, &saved);
      const Tensor dx =
          layer.backward(dy.view(), {.phase = Phase::kBackward, .microbatch = microbatch}, saved);
      write(folder, "x" + suffix, x.view());
      write(folder, "dy" + suffix, dy.view());
      write(folder, "y" + suffix, y.view());
      write(folder, "dx" + suffix, dx.view());
    }
    write(folder, fmt::format("dweight_{}", step), layer.weight().gradient.view());
    session.step();
  }
  session.close();
}

}  // namespace
}  // namespace amaxscope::megatron

int main(int argc, char** argv) {
  using namespace amaxscope;  // NOLINT(google-build-using-namespace): one function
  if (argc != 3) return 2;
  const std::filesystem::path root = argv[1];
  try {
    for (const megatron::Case& which : megatron::kCases) {
      run_loopback_ranks(std::atoi(argv[2]),
                         [&](Communicator& world) { megatron::run_case(which, root, world); });
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}

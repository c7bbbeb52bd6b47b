// Scales do not depend on the number of tensor-parallel ranks: on operands that are the same
// (teacher-forced), and in an ordinary run wherever the operands are.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "collectives/loopback_communicator.hpp"
#include "features/builtin.hpp"
#include "megatron/model_support.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron {
namespace {

using testing::ModelRun;
using testing::random_batch;
using testing::random_tensor;
using testing::run_model;
using testing::run_model_on;
using testing::RunOptions;

/// An operand as one rank alone had it.
struct Recorded {
  std::vector<float> values;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
using Recording = std::map<std::pair<std::string, TensorKind>, Recorded>;

/// Keeps a copy of every operand it sees.
class Recorder final : public Feature {
 public:
  Recorder(FeatureConfig config, Recording& recording) : Feature(std::move(config)), recording_(recording) {}
  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t) const override {
    return config().params(std::nullopt, tensor.kind) != nullptr ? Decision::always() : Decision::never();
  }
  void inspect_tensor(const InspectContext& context) override {
    const auto values = context.x.values<float>();
    recording_[{context.tensor.layer, context.tensor.kind.value()}] = {
        {values.begin(), values.end()}, context.x.rows(), context.x.cols()};
  }

 private:
  Recording& recording_;
};

/// Every operand of a step of the small model on one rank.
Recording record_one_rank() {
  Recording recording;
  FeatureRegistry registry;
  registry.add({.schema = {.name = "Recorder", .doc = "Keeps copies.", .takes_tensors = true},
                .base_namespace = false,
                .make = [&](FeatureConfig config) {
                  return std::make_unique<Recorder>(std::move(config), recording);
                }});
  SessionOptions session_options;
  session_options.config_text = R"(
s:
  enabled: true
  layers: {layer_name_regex_pattern: decoder}
  transformer_engine:
    Recorder: {enabled: true, tensors: [activation, weight, gradient]}
)";
  DebugSession session(registry, {}, session_options);
  RunOptions options;
  options.context.recipe = RecipeKind::kDelayed;
  options.context.session = &session;
  options.gradient_scale = 4096;
  const std::vector<Batch> batches = {random_batch(1, 32, 64)};
  run_model(options, nullptr, batches);
  return recording;
}

/// This rank's part of an operand.
Tensor part_of(const Recorded& whole, Layout layout, int rank, int ranks) {
  const bool by_rows = layout == Layout::kShard0;
  const bool by_cols = layout == Layout::kShard1;
  const std::int64_t rows = by_rows ? whole.rows / ranks : whole.rows;
  const std::int64_t cols = by_cols ? whole.cols / ranks : whole.cols;
  Tensor part(DType::kF32, {rows, cols});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t row = r + (by_rows ? rank * rows : 0);
      const std::int64_t col = c + (by_cols ? rank * cols : 0);
      part.values<float>()[static_cast<std::size_t>(r * cols + c)] =
          whole.values[static_cast<std::size_t>(row * whole.cols + col)];
    }
  }
  return part;
}

float scale_of_whole(const Recorded& whole, TensorKind tensor) {
  float largest = 0;
  for (const float value : whole.values) largest = std::max(largest, std::abs(value));
  return (tensor == TensorKind::kGradient ? 57344.0F : 448.0F) / largest;
}

std::string scale_everything(std::string_view amax_scope) {
  return fmt::format(R"(
s:
  enabled: true
  layers: {{layer_types: [all]}}
  transformer_engine:
    PerTensorScaling:
      enabled: true
      gemms: [fprop, dgrad, wgrad]
      tensors: [activation, weight, gradient]
      amax_scope: {}
)",
                     amax_scope);
}

/// The scales that PerTensorScaling gives each rank's part of each recorded operand.
std::vector<std::map<std::pair<std::string, TensorKind>, float>> forced_scales(const Recording& recording,
                                                                               int ranks,
                                                                               bool sequence_parallel,
                                                                               std::string_view amax_scope) {
  std::vector<std::map<std::pair<std::string, TensorKind>, float>> scales(static_cast<std::size_t>(ranks));
  const FeatureRegistry registry = builtin_features();
  run_loopback_ranks(ranks, [&](Communicator& world) {
    const ProcessGroups groups(world, {.tp = ranks});
    SessionOptions options;
    options.config_text = scale_everything(amax_scope);
    DebugSession session(registry, SessionGroups::from(groups), options);
    DelayedScalingState state({}, nullptr);
    for (const std::string& name : Gpt::layer_names(testing::small_model())) {
      if (!recording.contains({name, TensorKind::kActivation})) continue;  // output_layer has no recipe
      LayerDescription layer;
      layer.name = name;
      layer.parallel =
          name.ends_with("qkv") || name.ends_with("fc1") ? ParallelMode::kColumn : ParallelMode::kRow;
      layer.sequence_parallel = sequence_parallel;
      layer.recipe = RecipeKind::kDelayed;
      layer.tp_group = &groups.tp();
      const auto parent = [&](TensorKind tensor) {
        return std::make_shared<Float8Quantizer>(state,
                                                 state.add(name, operand_format(layer.recipe, tensor)));
      };
      const LayerHandle handle = session.layer(
          layer,
          {parent(TensorKind::kActivation), parent(TensorKind::kWeight), parent(TensorKind::kGradient)});
      for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
        const Tensor part =
            part_of(recording.at({name, tensor}), layout_of(layer, tensor), world.rank(), world.size());
        const auto made = handle.quantizer(tensor)->quantize(part, {true, true}, {});
        const auto& pair = dynamic_cast<const DebugQuantizedTensor&>(*made);
        scales[static_cast<std::size_t>(world.rank())][{name, tensor}] =
            dynamic_cast<const Float8Tensor&>(*pair.get_tensor(false)).scale();
      }
    }
  });
  return scales;
}

TEST(Invariance, TeacherForcedOperandsHaveTheScalesOfOneRank) {
  const Recording recording = record_one_rank();
  ASSERT_EQ(recording.size(), 2U * 4 * 3);
  for (const int ranks : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      const auto scales = forced_scales(recording, ranks, sequence_parallel, "tensor");
      for (const auto& [key, whole] : recording) {
        for (const auto& of_rank : scales) {
          EXPECT_EQ(of_rank.at(key), scale_of_whole(whole, key.second))
              << key.first << " " << to_string(key.second) << " tp " << ranks << " sp " << sequence_parallel;
        }
      }
    }
  }
}

// The control: with the amax of every operand on one part alone, the scopes must part.
TEST(Invariance, LocalScalesDifferOnSplitOperandsOnly) {
  Recording recording = record_one_rank();
  for (auto& [key, whole] : recording) whole.values[0] = 4 * 448 / scale_of_whole(whole, TensorKind::kWeight);
  const auto scales = forced_scales(recording, 2, /*sequence_parallel=*/false, "local");
  for (const auto& [key, whole] : recording) {
    const bool column = key.first.ends_with("qkv") || key.first.ends_with("fc1");
    const bool split =
        key.second == TensorKind::kWeight || (key.second == TensorKind::kActivation ? !column : column);
    EXPECT_EQ(scales[0].at(key), scale_of_whole(whole, key.second));
    EXPECT_EQ(scales[1].at(key) != scales[0].at(key), split) << key.first << " " << to_string(key.second);
  }
}

TEST(Invariance, AnOrdinaryRunSharesTheScalesOfWeightsAndOfTheFirstInput) {
  RunOptions options;
  options.context.recipe = RecipeKind::kDelayed;
  options.context.seed = 3;
  options.gradient_scale = 4096;
  const std::vector<Batch> batches = {random_batch(1, 32, 64), random_batch(2, 32, 64)};
  const ModelRun expected = run_model(options, nullptr, batches);
  for (const int ranks : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      options.context.sequence_parallel = sequence_parallel;
      const ModelRun run = run_model_on(ranks, options, batches);
      int compared = 0;
      for (const auto& [name, slot] : expected.slots) {
        if (!name.ends_with(".weight") && name != "decoder.layers.1.self_attention.linear_qkv.activation")
          continue;
        ++compared;
        EXPECT_NE(slot.amax_bits, 0U) << name;
        EXPECT_EQ(run.slots.at(name), slot) << name << " tp " << ranks << " sp " << sequence_parallel;
      }
      EXPECT_EQ(compared, 2 * 4 + 1);
    }
  }
}

}  // namespace
}  // namespace amaxscope::megatron

// The layouts are those of Megatron-LM's linear layers, worked by hand: Y [M, N] = X [M, K] * W [N, K]^T, a
// column- parallel layer holds N/t rows of W, a row-parallel one K/t columns, sequence parallelism gives each
// rank M/t tokens.
#include "runtime/layer.hpp"

#include <gmock/gmock.h>

#include <array>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"

namespace amaxscope {
namespace {

using enum Layout;

/// activation, weight, gradient, output, wgrad, dgrad
using Layouts = std::array<Layout, 6>;

Layouts layouts_of(const LayerDescription& layer) {
  Layouts result{};
  for (std::size_t i = 0; i < kAllTensors.size(); ++i) result[i] = layout_of(layer, kAllTensors[i]);
  return result;
}

LayerDescription described(Communicator& tp, ParallelMode mode, bool sequence_parallel) {
  LayerDescription layer;
  layer.name = "fc";
  layer.parallel = mode;
  layer.sequence_parallel = sequence_parallel;
  layer.tp_group = &tp;
  return layer;
}

TEST(Layer, LayoutsFollowTheParallelMode) {
  run_loopback_ranks(2, [](Communicator& tp) {
    EXPECT_EQ(layouts_of(described(tp, ParallelMode::kColumn, false)),
              (Layouts{kReplicated, kShard0, kShard1, kShard1, kShard0, kPartial}));
    EXPECT_EQ(layouts_of(described(tp, ParallelMode::kColumn, true)),
              (Layouts{kShard0, kShard0, kShard1, kShard1, kShard0, kPartial}));
    EXPECT_EQ(layouts_of(described(tp, ParallelMode::kRow, false)),
              (Layouts{kShard1, kShard1, kReplicated, kPartial, kShard1, kShard1}));
    EXPECT_EQ(layouts_of(described(tp, ParallelMode::kRow, true)),
              (Layouts{kShard1, kShard1, kShard0, kPartial, kShard1, kShard1}));
    Layouts replicated;
    replicated.fill(kReplicated);
    EXPECT_EQ(layouts_of(described(tp, ParallelMode::kNone, true)), replicated);
  });
}

TEST(Layer, OneRankHoldsEverything) {
  const auto alone = make_single_rank_communicator();
  Layouts replicated;
  replicated.fill(kReplicated);
  LayerDescription layer = described(*alone, ParallelMode::kRow, true);
  EXPECT_EQ(layouts_of(layer), replicated);
  layer.tp_group = nullptr;
  EXPECT_EQ(layouts_of(layer), replicated);
  EXPECT_FALSE(codes_are_gathered(layer, TensorKind::kGradient));
  EXPECT_FALSE(reduces_amax(AmaxScope::kTensor, layer, TensorKind::kOutput));
}

TEST(Layer, CodesAreGatheredOnlyForSequenceParallelInputs) {
  run_loopback_ranks(2, [](Communicator& tp) {
    for (const ParallelMode mode : {ParallelMode::kNone, ParallelMode::kColumn, ParallelMode::kRow}) {
      for (const bool sequence_parallel : {false, true}) {
        for (const TensorKind tensor : kAllTensors) {
          const bool column_input = mode == ParallelMode::kColumn && tensor == TensorKind::kActivation;
          const bool row_gradient = mode == ParallelMode::kRow && tensor == TensorKind::kGradient;
          const LayerDescription layer = described(tp, mode, sequence_parallel);
          EXPECT_EQ(codes_are_gathered(layer, tensor), sequence_parallel && (column_input || row_gradient))
              << to_string(mode) << ' ' << sequence_parallel << ' ' << to_string(tensor);
        }
      }
    }
  });
}

TEST(Layer, ScopesReduceWhereTheySay) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const LayerDescription column = described(tp, ParallelMode::kColumn, false);
    const LayerDescription column_sp = described(tp, ParallelMode::kColumn, true);
    const LayerDescription row = described(tp, ParallelMode::kRow, false);
    // The whole tensor's scale: wherever it is split.
    EXPECT_FALSE(reduces_amax(AmaxScope::kTensor, column, TensorKind::kActivation));
    EXPECT_TRUE(reduces_amax(AmaxScope::kTensor, column, TensorKind::kWeight));
    EXPECT_TRUE(reduces_amax(AmaxScope::kTensor, column, TensorKind::kGradient));
    EXPECT_TRUE(reduces_amax(AmaxScope::kTensor, row, TensorKind::kActivation));
    EXPECT_FALSE(reduces_amax(AmaxScope::kTensor, row, TensorKind::kGradient));
    // The reference's recipe: only what is gathered as codes.
    EXPECT_TRUE(reduces_amax(AmaxScope::kTe, column_sp, TensorKind::kActivation));
    EXPECT_FALSE(reduces_amax(AmaxScope::kTe, column_sp, TensorKind::kWeight));
    EXPECT_FALSE(reduces_amax(AmaxScope::kTe, row, TensorKind::kActivation));
    for (const TensorKind tensor : kAllTensors) {
      EXPECT_FALSE(reduces_amax(AmaxScope::kLocal, column_sp, tensor)) << to_string(tensor);
    }
  });
}

TEST(Layer, APartialSumHasNoScaleOfTheWholeTensor) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const LayerDescription row = described(tp, ParallelMode::kRow, false);
    try {
      static_cast<void>(reduces_amax(AmaxScope::kTensor, row, TensorKind::kOutput));
      ADD_FAILURE() << "a partial sum was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), testing::HasSubstr("layer fc: output is a partial sum on each of 2 ranks"));
    }
    EXPECT_FALSE(reduces_amax(AmaxScope::kTe, row, TensorKind::kOutput));
    EXPECT_FALSE(reduces_amax(AmaxScope::kLocal, row, TensorKind::kOutput));
  });
}

TEST(Layer, ScopesAreReadAsTheyAreWritten) {
  EXPECT_EQ(parse_amax_scope("tensor"), AmaxScope::kTensor);
  EXPECT_EQ(parse_amax_scope("te"), AmaxScope::kTe);
  EXPECT_EQ(parse_amax_scope("local"), AmaxScope::kLocal);
  EXPECT_FALSE(parse_amax_scope("Tensor"));
  EXPECT_EQ(to_string(ParallelMode::kColumn), "column");
}

}  // namespace
}  // namespace amaxscope

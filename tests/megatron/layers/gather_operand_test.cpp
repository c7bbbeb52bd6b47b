// Gathering quantized operands over ranks: what is decoded afterwards, and how much travels.
#include "megatron/layers/gather_operand.hpp"

#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "kernels/worker_pool.hpp"
#include "megatron/model_support.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope::megatron {
namespace {

using testing::to_doubles;

constexpr Usage kBoth{.rowwise = true, .columnwise = true};
constexpr Usage kRowwise{.rowwise = true, .columnwise = false};
constexpr Usage kColumnwise{.rowwise = false, .columnwise = true};

/// [1, 2] of each rank: 1, 2 and 3, 4; exact in E4M3 under scale 1 and 2.
Tensor own_row(const Communicator& tp) {
  return tp.rank() == 0 ? Tensor::of<float>({1, 2}, {1, 2}) : Tensor::of<float>({3, 4}, {1, 2});
}
const std::vector<double> kWhole = {1, 2, 3, 4};

std::vector<double> decoded(const QuantizedTensor& tensor, Direction direction) {
  return to_doubles(tensor.dequantize(DType::kF32, direction).view());
}

TEST(GatherOperand, CodesInTheWantedDirections) {
  run_loopback_ranks(2, [](Communicator& tp) {
    for (const Usage shard : {kBoth, kRowwise, kColumnwise}) {
      for (const Usage wanted : {kBoth, kRowwise, kColumnwise}) {
        const auto all = gather_operand(quantize_float8(own_row(tp).view(), DType::kE4M3, 2.0F, shard),
                                        wanted, tp, "fc", "activation");
        EXPECT_EQ(all->usage(), wanted);
        EXPECT_EQ(all->shape(), Shape({2, 2}));
        for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
          if (wanted.has(direction)) {
            EXPECT_EQ(decoded(*all, direction), kWhole);
          }
        }
        if (wanted.columnwise) {
          EXPECT_EQ(all->operand(Direction::kColumnwise).rows(), 2);
          EXPECT_EQ(to_doubles(all->dequantize(DType::kF32, Direction::kColumnwise).view()), kWhole);
        }
      }
    }
  });
}

TEST(GatherOperand, KeepsTheThreadsOfTheShard) {
  run_loopback_ranks(2, [](Communicator& tp) {
    for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kCurrent, RecipeKind::kMxfp8}) {
      auto threads = std::make_shared<WorkerPool>(2);
      const std::weak_ptr<WorkerPool> seen = threads;
      const Tensor x(DType::kF32, {32, 32});
      const TensorView shared = on_stream(x, threads->stream());
      auto shard = recipe == RecipeKind::kNone
                       ? std::make_shared<HighPrecisionTensor>(shared)
                       : make_quantizer({.recipe = recipe, .tensor = TensorKind::kActivation})
                             ->quantize(shared, kBoth, {});
      auto all = gather_operand(shard, kBoth, tp, "fc", "activation");
      shard.reset();
      threads.reset();
      EXPECT_FALSE(seen.expired());
      EXPECT_EQ(decoded(*all, Direction::kRowwise), std::vector<double>(64 * 32, 0.0));
      all.reset();
      EXPECT_TRUE(seen.expired());
    }
  });
}

TEST(GatherOperand, MembersOfTwoKindsKeepTheirDirection) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const Tensor x = own_row(tp);
    // The rowwise member holds twice the values, so that a mix-up shows.
    Tensor doubled = x.clone();
    for (float& value : doubled.values<float>()) value *= 2;
    const auto codes = quantize_float8(doubled.view(), DType::kE4M3, 1.0F, kRowwise);
    const auto plain = std::make_shared<HighPrecisionTensor>(x.view());
    const auto before = tp.counters().calls(Traffic::kTrainer);
    const auto all = gather_operand(std::make_shared<DebugQuantizedTensor>(x.shape(), codes, plain), kBoth,
                                    tp, "fc", "activation");
    EXPECT_EQ(tp.counters().calls(Traffic::kTrainer) - before, 2U);
    EXPECT_EQ(decoded(*all, Direction::kRowwise), (std::vector<double>{2, 4, 6, 8}));
    EXPECT_EQ(decoded(*all, Direction::kColumnwise), kWhole);
    EXPECT_EQ(all->format(Direction::kRowwise), DType::kE4M3);
    EXPECT_EQ(all->format(Direction::kColumnwise), DType::kF32);
    // The other way round, with codes that exist columnwise only.
    const auto transposed = quantize_float8(doubled.view(), DType::kE5M2, 1.0F, kColumnwise);
    const auto other = gather_operand(std::make_shared<DebugQuantizedTensor>(x.shape(), plain, transposed),
                                      kBoth, tp, "fc", "activation");
    EXPECT_EQ(decoded(*other, Direction::kRowwise), kWhole);
    EXPECT_EQ(decoded(*other, Direction::kColumnwise), (std::vector<double>{2, 4, 6, 8}));
  });
}

TEST(GatherOperand, WhatIsSharedTravelsOnce) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const Tensor x = own_row(tp);
    const auto calls_of = [&](const std::shared_ptr<QuantizedTensor>& shard, Usage wanted) {
      const auto before = tp.counters().calls(Traffic::kTrainer);
      const auto all = gather_operand(shard, wanted, tp, "fc", "activation");
      for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
        if (wanted.has(direction)) {
          EXPECT_EQ(decoded(*all, direction), kWhole);
        }
      }
      return tp.counters().calls(Traffic::kTrainer) - before;
    };
    const auto codes = quantize_float8(x.view(), DType::kE4M3, 1.0F, kBoth);
    EXPECT_EQ(calls_of(std::make_shared<DebugQuantizedTensor>(x.shape(), codes, codes), kBoth), 1U);
    EXPECT_EQ(calls_of(std::make_shared<DebugQuantizedTensor>(x.shape(), codes, codes), kRowwise), 1U);
    // Two objects that borrow one memory are one thing to send.
    EXPECT_EQ(calls_of(std::make_shared<DebugQuantizedTensor>(
                           x.shape(), std::make_shared<HighPrecisionTensor>(x.view()),
                           std::make_shared<HighPrecisionTensor>(x.view())),
                       kBoth),
              1U);
  });
}

TEST(GatherOperand, BlockScaledCodesTravelWithTheirScales) {
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const std::int64_t rows = recipe == RecipeKind::kBlock ? 128 : 32;
    const Tensor whole_tensor = testing::random_tensor(DType::kF32, {2 * rows, 64}, 3);
    // Ranks share the amax, as the recipe makes them.
    const auto quantizer_of = [&] {
      return make_quantizer({.recipe = recipe, .reduce_amaxes = [](const MutableTensorView& amaxes) {
                               for (std::uint32_t& amax : amaxes.values<std::uint32_t>()) amax = 0x40800000U;
                             }});
    };
    const auto expected = quantizer_of()->quantize(whole_tensor.view(), kBoth, {});
    run_loopback_ranks(2, [&](Communicator& tp) {
      const auto half = static_cast<std::size_t>(rows * 64);
      const Tensor own = Tensor::of<float>(
          whole_tensor.values<float>().subspan(static_cast<std::size_t>(tp.rank()) * half, half), {rows, 64});
      const auto shard = quantizer_of()->quantize(own.view(), kBoth, {});
      const auto debug = std::make_shared<DebugQuantizedTensor>(own.shape(), shard, shard);
      for (const Usage wanted : {kBoth, kRowwise, kColumnwise}) {
        for (const std::shared_ptr<QuantizedTensor>& from :
             {shard, std::shared_ptr<QuantizedTensor>(debug)}) {
          const auto all = gather_operand(from, wanted, tp, "fc", "activation");
          EXPECT_EQ(all->usage(), wanted);
          EXPECT_EQ(all->shape(), whole_tensor.shape());
          for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
            if (wanted.has(direction)) {
              EXPECT_EQ(decoded(*all, direction), decoded(*expected, direction)) << to_string(recipe);
            }
          }
          if (!wanted.columnwise) {
            EXPECT_THROW(all->update_usage(kBoth), Error) << "one-dimensional blocks cannot be turned";
          }
        }
      }
    });
  }
}

TEST(GatherOperand, RowsThatMakeWholeBlocks) {
  EXPECT_TRUE(slices_are_whole_blocks(RecipeKind::kCurrent, 7));
  EXPECT_TRUE(slices_are_whole_blocks(RecipeKind::kMxfp8, 64));
  EXPECT_FALSE(slices_are_whole_blocks(RecipeKind::kMxfp8, 48));
  EXPECT_FALSE(slices_are_whole_blocks(RecipeKind::kBlock, 64));
  EXPECT_TRUE(slices_are_whole_blocks(RecipeKind::kNvfp4, 48));
  EXPECT_FALSE(slices_are_whole_blocks(RecipeKind::kNvfp4, 0)) << "not known";
}

TEST(GatherOperand, DecodesWithTheOwnScale) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const auto all =
        gather_operand(quantize_float8(own_row(tp).view(), DType::kE4M3, tp.rank() == 0 ? 1.0F : 2.0F, {}),
                       kRowwise, tp, "fc", "activation");
    EXPECT_EQ(decoded(*all, Direction::kRowwise),
              tp.rank() == 0 ? (std::vector<double>{1, 2, 6, 8}) : (std::vector<double>{0.5, 1, 3, 4}));
  });
}

}  // namespace
}  // namespace amaxscope::megatron

// The claim of the project: a feature's scale does not depend on how a tensor is spread over tensor-parallel
// ranks. One global tensor, replicated or split on either dimension, evenly, unevenly, with empty shards, on
// 1, 2, 4 and 8 ranks. Scales are golden: the amax is planted at 3, and 448/3, 57344/3 rounded to fp32 are
// 0x43155555, 0x46955555.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "tests/features/feature_support.hpp"

namespace amaxscope {
namespace {

using testing_support::layer_with;
using testing_support::LoadedFeatures;
using testing_support::recipe_quantizer;
using testing_support::section;

constexpr std::int64_t kSide = 16;
constexpr Usage kRowwise{true, false};

struct Case {
  ParallelMode mode;
  bool sequence_parallel;
  TensorKind tensor;
};
// Every layout, and for shard0 one tensor whose codes are gathered and one whose codes are not.
constexpr std::array kCases = {
    Case{ParallelMode::kColumn, false, TensorKind::kActivation},  // replicated
    Case{ParallelMode::kColumn, true, TensorKind::kActivation},   // shard0, gathered
    Case{ParallelMode::kColumn, false, TensorKind::kWeight},      // shard0
    Case{ParallelMode::kRow, true, TensorKind::kGradient},        // shard0, gathered
    Case{ParallelMode::kRow, false, TensorKind::kActivation},     // shard1
    Case{ParallelMode::kColumn, false, TensorKind::kGradient}};   // shard1

enum class Split { kEven, kUneven, kWithEmpty };

/// Where each rank's part of kSide begins, and the end.
std::vector<std::int64_t> boundaries(Split split, int ranks) {
  std::vector<std::int64_t> result{0};
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t size = kSide / ranks;
    if (split == Split::kUneven) size = rank + 1 < ranks ? 1 : kSide - result.back();
    if (split == Split::kWithEmpty) size = rank % 2 == 0 ? kSide / ((ranks + 1) / 2) : 0;
    result.push_back(result.back() + size);
  }
  EXPECT_EQ(result.back(), kSide);
  return result;
}

/// Values below 2 over many binades, with -3 planted.
std::vector<float> global_values(std::size_t planted_at) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-18, 0);
  std::vector<float> values(kSide * kSide);
  for (float& value : values) value = std::ldexp(mantissa(random), exponent(random));
  values[planted_at] = -3.0F;
  return values;
}

struct Block {
  std::int64_t row0, row1, column0, column1;
};

Block block_of(Layout layout, const std::vector<std::int64_t>& bounds, int rank) {
  const std::int64_t begin = bounds[static_cast<std::size_t>(rank)];
  const std::int64_t end = bounds[static_cast<std::size_t>(rank) + 1];
  if (layout == Layout::kShard0) return {begin, end, 0, kSide};
  if (layout == Layout::kShard1) return {0, kSide, begin, end};
  return {0, kSide, 0, kSide};
}

template <class T>
std::vector<T> cut(std::span<const T> whole, const Block& block) {
  std::vector<T> part;
  for (std::int64_t row = block.row0; row < block.row1; ++row) {
    for (std::int64_t column = block.column0; column < block.column1; ++column) {
      part.push_back(whole[static_cast<std::size_t>(row * kSide + column)]);
    }
  }
  return part;
}

Tensor tensor_of(const std::vector<float>& values, Shape shape, DType dtype) {
  Tensor wide = Tensor::of<float>(values, shape);
  if (dtype == DType::kF32) return wide;
  Tensor narrow(dtype, shape);
  convert(wide.view(), narrow);
  return narrow;
}

/// One of the features on one tensor, as a layer would use it.
std::shared_ptr<QuantizedTensor> run_feature(const LoadedFeatures& features, const LayerDescription& layer,
                                             TensorKind tensor, DType format, const TensorView& x,
                                             AmaxReducer* reducer,
                                             AmaxScope session_default = AmaxScope::kTensor) {
  const DebugServices services{.amax_scope = session_default, .tp_amax = reducer};
  DebugQuantizer quantizer(layer, tensor, recipe_quantizer(format), features.all(), services);
  quantizer.begin_iteration(0);
  const auto result = quantizer.quantize(x, kRowwise, {});
  return dynamic_cast<const DebugQuantizedTensor&>(*result).get_tensor(false);
}

std::string all_pairs(const std::string& keys) {
  return "{enabled: True, gemms: [fprop, dgrad, wgrad], tensors: [activation, weight, gradient]" + keys + "}";
}
LoadedFeatures scaling(const std::string& keys = "") {
  return LoadedFeatures(section("s", "{PerTensorScaling: " + all_pairs(keys) + "}"));
}
LoadedFeatures fake_quant(DType format, const std::string& keys = "") {
  const std::string name = format == DType::kE4M3 ? "FP8E4M3" : "FP8E5M2";
  return LoadedFeatures(section("s", "{FakeQuant: " + all_pairs(", quant_format: " + name + keys) + "}"));
}

const Float8Tensor& fp8(const std::shared_ptr<QuantizedTensor>& tensor) {
  return dynamic_cast<const Float8Tensor&>(*tensor);
}

std::vector<std::uint8_t> bytes_of(const TensorView& view) {
  std::vector<std::uint8_t> bytes(view.bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), view.data(), bytes.size());
  return bytes;
}

void expect_parts_of_the_whole(Communicator& group, AmaxReducer& reducer, const Case& given, Split split,
                               DType dtype, DType format, std::size_t planted_at) {
  const std::vector<float> values = global_values(planted_at);
  const Tensor whole = tensor_of(values, Shape{kSide, kSide}, dtype);
  LayerDescription alone = layer_with(RecipeKind::kDelayed);
  alone.parallel = given.mode;
  alone.sequence_parallel = given.sequence_parallel;
  alone.compute_dtype = dtype;
  LayerDescription spread = alone;
  spread.tp_group = &group;
  const Layout layout = layout_of(spread, given.tensor);
  const Block block = block_of(layout, boundaries(split, group.size()), group.rank());
  const Shape shape{block.row1 - block.row0, block.column1 - block.column0};
  const Tensor part = tensor_of(cut<float>(values, block), shape, dtype);
  const std::string where =
      fmt::format("{} ranks, rank {}, {} {}, split {}, {}, {}, planted at {}", group.size(), group.rank(),
                  to_string(layout), to_string(given.tensor), static_cast<int>(split), to_string(dtype),
                  to_string(format), planted_at);

  const auto whole_codes = run_feature(scaling(), alone, given.tensor, format, whole, nullptr);
  const auto part_codes = run_feature(scaling(), spread, given.tensor, format, part, &reducer);
  const std::uint32_t golden = format == DType::kE4M3 ? 0x43155555U : 0x46955555U;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp8(whole_codes).scale()), golden) << where;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp8(part_codes).scale()), golden) << where;
  const auto codes_of = [](const auto& tensor) { return fp8(tensor).codes(Direction::kRowwise).view(); };
  EXPECT_EQ(bytes_of(codes_of(part_codes)), cut(codes_of(whole_codes).template values<std::uint8_t>(), block))
      << where;

  const auto whole_fake = run_feature(fake_quant(format), alone, given.tensor, format, whole, nullptr);
  const auto part_fake = run_feature(fake_quant(format), spread, given.tensor, format, part, &reducer);
  ASSERT_EQ(part_fake->format(Direction::kRowwise), dtype);
  const Tensor whole_values = whole_fake->dequantize(DType::kF32, Direction::kRowwise);
  const Tensor expected = tensor_of(cut<float>(whole_values.values<float>(), block), shape, dtype);
  EXPECT_EQ(bytes_of(part_fake->operand(Direction::kRowwise).data), bytes_of(expected)) << where;
}

class AmaxInvariance : public testing::TestWithParam<int> {};

TEST_P(AmaxInvariance, PartsAreBitEqualToTheWhole) {
  run_loopback_ranks(GetParam(), [](Communicator& group) {
    CollectiveGuard guard(group, {});
    AmaxReducer reducer(guard);
    for (const Case& given : kCases) {
      for (const Split split : {Split::kEven, Split::kUneven, Split::kWithEmpty}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          for (const DType format : {DType::kE4M3, DType::kE5M2}) {
            for (const std::size_t planted_at : {std::size_t{0}, std::size_t{255}}) {
              expect_parts_of_the_whole(group, reducer, given, split, dtype, format, planted_at);
            }
          }
        }
      }
    }
  });
}

// Were the reduction left out, this is what would be seen; it also shows that the test above can fail.
TEST_P(AmaxInvariance, LocalScalesDifferWhereTheAmaxIsElsewhere) {
  if (GetParam() == 1) return;
  run_loopback_ranks(GetParam(), [](Communicator& group) {
    CollectiveGuard guard(group, {});
    AmaxReducer reducer(guard);
    for (const auto& [mode, tensor] : {std::pair{ParallelMode::kColumn, TensorKind::kWeight},
                                       std::pair{ParallelMode::kRow, TensorKind::kActivation},
                                       std::pair{ParallelMode::kRow, TensorKind::kWeight}}) {
      std::vector<float> values = global_values(0);
      values[0] = 8.0F;  // at least twice any other
      LayerDescription layer = layer_with(RecipeKind::kDelayed);
      layer.parallel = mode;
      layer.tp_group = &group;
      const Block block =
          block_of(layout_of(layer, tensor), boundaries(Split::kEven, group.size()), group.rank());
      const Tensor part = tensor_of(cut<float>(values, block),
                                    {block.row1 - block.row0, block.column1 - block.column0}, DType::kF32);
      const std::uint64_t before = group.counters().calls(Traffic::kDebug);
      const auto local =
          run_feature(scaling(", amax_scope: local"), layer, tensor, DType::kE4M3, part, &reducer);
      EXPECT_EQ(group.counters().calls(Traffic::kDebug), before) << "local needs no collective";
      const auto by_session =
          run_feature(scaling(), layer, tensor, DType::kE4M3, part, &reducer, AmaxScope::kLocal);
      EXPECT_EQ(fp8(by_session).scale(), fp8(local).scale()) << "the session's default was not used";
      const auto shared = run_feature(scaling(), layer, tensor, DType::kE4M3, part, &reducer);
      EXPECT_EQ(fp8(shared).scale(), 56.0F);
      EXPECT_EQ(fp8(local).scale() == 56.0F, group.rank() == 0) << to_string(tensor);
      EXPECT_GE(fp8(local).scale(), group.rank() == 0 ? 56.0F : 112.0F);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, AmaxInvariance, testing::Values(1, 2, 4, 8));

TEST(AmaxScope, TeReducesExactlyWhereCodesAreGathered) {
  run_loopback_ranks(2, [](Communicator& group) {
    CollectiveGuard guard(group, {});
    AmaxReducer reducer(guard);
    const Tensor x = Tensor::of({group.rank() == 0 ? 1.0F : 4.0F}, Shape{1, 1});
    for (const Case& given : kCases) {
      LayerDescription layer = layer_with(RecipeKind::kDelayed);
      layer.parallel = given.mode;
      layer.sequence_parallel = given.sequence_parallel;
      layer.tp_group = &group;
      const bool gathered = codes_are_gathered(layer, given.tensor);
      const std::uint64_t before = group.counters().calls(Traffic::kDebug);
      const auto codes =
          run_feature(scaling(", amax_scope: te"), layer, given.tensor, DType::kE4M3, x, &reducer);
      EXPECT_EQ(group.counters().calls(Traffic::kDebug) - before, gathered ? 1U : 0U)
          << to_string(given.tensor);
      EXPECT_EQ(fp8(codes).scale(), gathered || group.rank() == 1 ? 112.0F : 448.0F);
    }
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 0U);
  });
}

TEST(AmaxScope, OneCollectiveForBothDirections) {
  run_loopback_ranks(2, [](Communicator& group) {
    CollectiveGuard guard(group, {});
    AmaxReducer reducer(guard);
    LayerDescription layer = layer_with(RecipeKind::kDelayed);
    layer.parallel = ParallelMode::kRow;
    layer.tp_group = &group;
    const LoadedFeatures features = scaling();
    const DebugServices services{.tp_amax = &reducer};
    DebugQuantizer weight(layer, TensorKind::kWeight, recipe_quantizer(DType::kE4M3), features.all(),
                          services);
    weight.begin_iteration(0);
    static_cast<void>(weight.quantize(Tensor(DType::kF32, Shape{2, 2}), {true, true}, {}));
    EXPECT_EQ(group.counters().calls(Traffic::kDebug), 1U);
  });
}

std::string refusal(const LoadedFeatures& features, const LayerDescription& layer,
                    AmaxScope session_default) {
  try {
    features.front().admit_layer(layer, {.amax_scope = session_default});
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
}

TEST(AmaxScope, APartialSumIsRefusedAtRegistration) {
  run_loopback_ranks(2, [](Communicator& group) {
    LayerDescription row = layer_with(RecipeKind::kNone);
    row.parallel = ParallelMode::kRow;
    row.tp_group = &group;
    const auto with = [](const std::string& keys) {
      return LoadedFeatures(section(
          "mine", "{FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop], tensors: [output]" +
                      keys + "}}"));
    };
    const std::string text = refusal(with(""), row, AmaxScope::kTensor);
    EXPECT_THAT(text,
                testing::AllOf(testing::HasSubstr("layer decoder.fc1"), testing::HasSubstr("section mine"),
                               testing::HasSubstr("output, which is a partial sum on each of 2 ranks")));
    EXPECT_EQ(refusal(with(""), row, AmaxScope::kLocal), "") << "the session's default";
    EXPECT_EQ(refusal(with(", amax_scope: local"), row, AmaxScope::kTensor), "");
    EXPECT_NE(refusal(with(", amax_scope: tensor"), row, AmaxScope::kLocal), "");
    row.parallel = ParallelMode::kColumn;
    EXPECT_EQ(refusal(with(""), row, AmaxScope::kTensor), "") << "complete on each rank";
  });
}

TEST(AmaxScope, ALocalScaleForGatheredCodesIsRefusedAtRegistration) {
  run_loopback_ranks(2, [](Communicator& group) {
    LayerDescription column = layer_with(RecipeKind::kDelayed);
    column.parallel = ParallelMode::kColumn;
    column.sequence_parallel = true;
    column.tp_group = &group;
    const auto with = [](const std::string& keys) {
      return LoadedFeatures(section(
          "mine", "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [activation]" + keys + "}}"));
    };
    const std::string text = refusal(with(", amax_scope: local"), column, AmaxScope::kTensor);
    EXPECT_THAT(
        text, testing::AllOf(testing::HasSubstr("layer decoder.fc1"), testing::HasSubstr("section mine"),
                             testing::HasSubstr("activation"), testing::HasSubstr("use amax_scope tensor")));
    EXPECT_NE(refusal(with(""), column, AmaxScope::kLocal), "") << "the session's default";
    EXPECT_EQ(refusal(with(""), column, AmaxScope::kTensor), "");
    EXPECT_EQ(refusal(with(", amax_scope: te"), column, AmaxScope::kLocal), "");
    column.sequence_parallel = false;
    EXPECT_EQ(refusal(with(", amax_scope: local"), column, AmaxScope::kTensor), "") << "nothing is gathered";
  });
}

}  // namespace
}  // namespace amaxscope

// The quantizers of the block-scaled recipes: defaults, ranks, caching, what can be had again. The arithmetic
// is tested in tests/kernels.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Usage kBoth{.rowwise = true, .columnwise = true};
constexpr Usage kRow{.rowwise = true, .columnwise = false};
constexpr Usage kColumn{.rowwise = false, .columnwise = true};
constexpr std::array kBlockRecipes = {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4};

Tensor values(Shape shape, double phase = 0) {
  Tensor x(DType::kF32, shape);
  double i = phase;
  for (float& value : x.values<float>()) {
    value = static_cast<float>(std::sin(i) * std::exp2(std::cos(i / 7) * 4));
    i += 1;
  }
  return x;
}

const BlockScaledTensor& blocks(const std::shared_ptr<QuantizedTensor>& tensor) {
  return dynamic_cast<const BlockScaledTensor&>(*tensor);
}

std::shared_ptr<Quantizer> make(RecipeKind recipe, TensorKind tensor, RecipeOptions options = {}) {
  return make_quantizer({.recipe = recipe, .tensor = tensor, .name = "fc1.x", .options = options});
}

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}
bool same_codes(const QuantizedTensor& a, const QuantizedTensor& b, Direction direction) {
  const auto& first = dynamic_cast<const BlockScaledTensor&>(a);
  const auto& second = dynamic_cast<const BlockScaledTensor&>(b);
  return same_bytes(first.blocks(direction).codes, second.blocks(direction).codes) &&
         same_bytes(first.blocks(direction).scales, second.blocks(direction).scales);
}

template <class Action>
std::string message_of(ErrorCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(BlockQuantizers, FormatsOfTheRecipes) {
  for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
    EXPECT_EQ(operand_format(RecipeKind::kMxfp8, tensor), DType::kE4M3);
    EXPECT_EQ(operand_format(RecipeKind::kBlock, tensor), DType::kE4M3);
    EXPECT_EQ(operand_format(RecipeKind::kNvfp4, tensor), DType::kE2M1);
    for (const RecipeKind recipe : kBlockRecipes) {
      EXPECT_EQ(make(recipe, tensor)->recipe(), recipe);
      EXPECT_EQ(make(recipe, tensor)->format(), operand_format(recipe, tensor));
    }
  }
  const auto e5m2 = make_quantizer({.recipe = RecipeKind::kMxfp8, .format = DType::kE5M2});
  EXPECT_EQ(e5m2->quantize(values({32, 32}), kRow, {})->format(Direction::kRowwise), DType::kE5M2);
}

struct Blocks {
  std::int64_t row_wise_down, row_wise_across, column_wise_down, column_wise_across;
  friend bool operator==(const Blocks&, const Blocks&) = default;
};
Blocks blocks_of(RecipeKind recipe, TensorKind tensor, RecipeOptions options = {}) {
  const auto made = make(recipe, tensor, options)->quantize(values({128, 256}), kBoth, {});
  const BlockLayout row = blocks(made).blocks(Direction::kRowwise).layout;
  const BlockLayout column = blocks(made).blocks(Direction::kColumnwise).layout;
  return {row.block_rows, row.block_cols, column.block_rows, column.block_cols};
}

TEST(BlockQuantizers, BlocksByTensorAndOptions) {
  EXPECT_EQ(blocks_of(RecipeKind::kMxfp8, TensorKind::kWeight), (Blocks{1, 32, 32, 1}));
  RecipeOptions square;
  square.mxfp8.two_dimensional_weights = true;
  EXPECT_EQ(blocks_of(RecipeKind::kMxfp8, TensorKind::kWeight, square), (Blocks{32, 32, 32, 32}));
  EXPECT_EQ(blocks_of(RecipeKind::kMxfp8, TensorKind::kActivation, square), (Blocks{1, 32, 32, 1}));
  EXPECT_EQ(blocks_of(RecipeKind::kBlock, TensorKind::kWeight), (Blocks{128, 128, 128, 128}));
  EXPECT_EQ(blocks_of(RecipeKind::kBlock, TensorKind::kActivation), (Blocks{1, 128, 128, 1}));
  EXPECT_EQ(blocks_of(RecipeKind::kBlock, TensorKind::kGradient), (Blocks{1, 128, 128, 1}));
  EXPECT_EQ(blocks_of(RecipeKind::kNvfp4, TensorKind::kWeight), (Blocks{16, 16, 16, 16}));
  RecipeOptions flat;
  flat.nvfp4.two_dimensional_weights = false;
  EXPECT_EQ(blocks_of(RecipeKind::kNvfp4, TensorKind::kWeight, flat), (Blocks{1, 16, 16, 1}));
  EXPECT_EQ(blocks_of(RecipeKind::kNvfp4, TensorKind::kGradient), (Blocks{1, 16, 16, 1}));
}

TEST(BlockQuantizers, OptionsBelongToTheInstance) {
  RecipeOptions exact;
  exact.block.power_of_two = false;
  const Tensor x = values({4, 128});
  const auto power = make(RecipeKind::kBlock, TensorKind::kActivation)->quantize(x, kRow, {});
  const auto plain = make(RecipeKind::kBlock, TensorKind::kActivation, exact)->quantize(x, kRow, {});
  const float scale = blocks(power).blocks(Direction::kRowwise).scale(0, 0);
  EXPECT_EQ(std::ldexp(1.0F, std::ilogb(scale)), scale);
  const float other = blocks(plain).blocks(Direction::kRowwise).scale(0, 0);
  EXPECT_NE(std::ldexp(1.0F, std::ilogb(other)), other);
  EXPECT_LT(other, scale) << "rounding a scale down makes its inverse larger";
}

TEST(BlockQuantizers, Nvfp4RotatesAndRoundsByTensor) {
  const Tensor x = values({32, 32});
  const auto rotated = [&](TensorKind tensor, RecipeOptions options = {}) {
    return blocks(make(RecipeKind::kNvfp4, tensor, options)->quantize(x, kBoth, {}))
        .blocks(Direction::kColumnwise)
        .rotated;
  };
  EXPECT_TRUE(rotated(TensorKind::kActivation));
  EXPECT_TRUE(rotated(TensorKind::kGradient));
  EXPECT_FALSE(rotated(TensorKind::kWeight));
  RecipeOptions off;
  off.nvfp4.random_hadamard = false;
  EXPECT_FALSE(rotated(TensorKind::kActivation, off));

  const auto repeats = [&](TensorKind tensor, RecipeOptions options = {}) {
    const auto quantizer = make(RecipeKind::kNvfp4, tensor, options);
    const auto first = quantizer->quantize(x, kBoth, {});
    const auto second = quantizer->quantize(x, kBoth, {});
    return same_codes(*first, *second, Direction::kRowwise);
  };
  EXPECT_TRUE(repeats(TensorKind::kActivation));
  EXPECT_TRUE(repeats(TensorKind::kWeight));
  EXPECT_FALSE(repeats(TensorKind::kGradient)) << "every call draws anew";
  RecipeOptions nearest;
  nearest.nvfp4.stochastic_rounding = false;
  EXPECT_TRUE(repeats(TensorKind::kGradient, nearest));
}

TEST(BlockQuantizers, TheRandomStreamIsOfSeedAndName) {
  const Tensor x = values({64, 64});
  const auto codes = [&](std::uint64_t seed, const std::string& name) {
    QuantizerRequest request{.recipe = RecipeKind::kNvfp4, .tensor = TensorKind::kGradient, .name = name};
    request.options.nvfp4.seed = seed;
    return make_quantizer(request)->quantize(x, kBoth, {});
  };
  const auto first = codes(1, "fc1.gradient");
  EXPECT_TRUE(same_codes(*first, *codes(1, "fc1.gradient"), Direction::kRowwise));
  EXPECT_FALSE(same_codes(*first, *codes(2, "fc1.gradient"), Direction::kRowwise));
  EXPECT_FALSE(same_codes(*first, *codes(1, "fc2.gradient"), Direction::kRowwise));
}

TEST(BlockQuantizers, ShapesThatTheFormatHasNotAreNamed) {
  const auto complaint = [](RecipeKind recipe, Shape shape) {
    const auto quantizer = make_quantizer(
        {.recipe = recipe, .tensor = TensorKind::kWeight, .name = "decoder.layers.1.fc1.weight"});
    return message_of(ErrorCode::kTensor,
                      [&] { static_cast<void>(quantizer->quantize(Tensor(DType::kF32, shape), kBoth, {})); });
  };
  EXPECT_THAT(complaint(RecipeKind::kMxfp8, {2, 24, 64}),
              AllOf(HasSubstr("decoder.layers.1.fc1.weight"), HasSubstr("[2, 24, 64]"), HasSubstr("48 x 64"),
                    HasSubstr("multiples of 32")));
  EXPECT_THAT(complaint(RecipeKind::kNvfp4, {32, 40}),
              AllOf(HasSubstr("32 x 40"), HasSubstr("multiples of 16")));
  EXPECT_NO_THROW(
      static_cast<void>(make(RecipeKind::kBlock, TensorKind::kWeight)->quantize(values({3, 5}), kBoth, {})));
}

TEST(BlockQuantizers, EmptyTensorsAndNoDirection) {
  for (const RecipeKind recipe : kBlockRecipes) {
    const auto quantizer = make(recipe, TensorKind::kGradient);
    const auto empty = quantizer->quantize(Tensor(DType::kF32, {0, 64}), kBoth, {});
    EXPECT_EQ(empty->shape(), Shape({0, 64}));
    EXPECT_EQ(empty->dequantize(DType::kF32, Direction::kColumnwise).numel(), 0);
    EXPECT_THROW(static_cast<void>(quantizer->quantize(values({32, 32}), {false, false}, {})), Error);
  }
}

TEST(BlockQuantizers, UpdateQuantizesAnewInTheSameDirections) {
  for (const RecipeKind recipe : kBlockRecipes) {
    for (const Usage usage : {kBoth, kRow, kColumn}) {
      const auto quantizer = make(recipe, TensorKind::kWeight);
      const auto cached = quantizer->quantize(values({64, 32}), usage, {});
      const Tensor next = values({64, 32}, 0.5);
      quantizer->update(next, *cached, {});
      EXPECT_EQ(cached->usage(), usage);
      const auto fresh = quantizer->quantize(next, usage, {});
      for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
        if (usage.has(direction)) {
          EXPECT_TRUE(same_codes(*cached, *fresh, direction)) << to_string(recipe);
        }
      }
    }
    const auto quantizer = make(recipe, TensorKind::kWeight);
    const auto cached = quantizer->quantize(values({64, 32}), kBoth, {});
    message_of(ErrorCode::kTensor, [&] { quantizer->update(values({32, 32}), *cached, {}); });
    const auto other = make(RecipeKind::kCurrent, TensorKind::kWeight)->quantize(values({64, 32}), kBoth, {});
    message_of(ErrorCode::kUsage, [&] { quantizer->update(values({64, 32}), *other, {}); });
  }
}

TEST(BlockQuantizers, ADroppedDirectionOfOneDimensionalBlocksIsGone) {
  for (const RecipeKind recipe : kBlockRecipes) {
    const auto activation = make(recipe, TensorKind::kActivation)->quantize(values({64, 32}), kBoth, {});
    activation->update_usage(kColumn);
    message_of(ErrorCode::kUsage, [&] { activation->update_usage(kBoth); });
    EXPECT_EQ(activation->usage(), kColumn);
  }
  for (const RecipeKind recipe : {RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const auto quantizer = make(recipe, TensorKind::kWeight);
    const auto weight = quantizer->quantize(values({64, 32}), kRow, {});
    weight->update_usage(kColumn);
    EXPECT_TRUE(
        same_codes(*weight, *quantizer->quantize(values({64, 32}), kBoth, {}), Direction::kColumnwise))
        << "square blocks have one set of codes";
  }
}

TEST(BlockQuantizers, Nvfp4SharesItsAmaxesInOneReduction) {
  const Tensor whole = values({64, 32});
  const auto expected = make(RecipeKind::kNvfp4, TensorKind::kActivation)->quantize(whole, kBoth, {});
  run_loopback_ranks(2, [&](Communicator& group) {
    const auto quantizer = make_quantizer({.recipe = RecipeKind::kNvfp4,
                                           .tensor = TensorKind::kActivation,
                                           .name = "fc1.activation",
                                           .reduce_amaxes = reduce_amaxes_over(&group, "fc1.activation")});
    const auto part = whole.values<float>().subspan(static_cast<std::size_t>(group.rank()) * 1024, 1024);
    const auto own = quantizer->quantize(Tensor::of<float>(part, {32, 32}), kBoth, {});
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 1U);
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      const BlockScaledView mine = blocks(own).blocks(direction);
      const BlockScaledView all = blocks(expected).blocks(direction);
      EXPECT_EQ(mine.tensor_scale, all.tensor_scale);
      for (std::int64_t m = 0; m < 32; ++m) {
        for (std::int64_t k = 0; k < 32; ++k) {
          ASSERT_EQ(mine.code(m, k), all.code(group.rank() * 32 + m, k));
        }
      }
    }
  });
}

TEST(BlockQuantizers, CombinationsThatDoNotExist) {
  RecipeOptions options;
  options.nvfp4.four_over_six = true;
  EXPECT_THAT(
      message_of(ErrorCode::kUsage, [&] { make(RecipeKind::kNvfp4, TensorKind::kActivation, options); }),
      HasSubstr("Hadamard"));
  options.nvfp4.random_hadamard = false;
  EXPECT_NO_THROW(make(RecipeKind::kNvfp4, TensorKind::kActivation, options));
  EXPECT_NO_THROW(make(RecipeKind::kNvfp4, TensorKind::kGradient, options)) << "it is for forward tensors";
  options.nvfp4.four_over_six_scale_max = 300;
  message_of(ErrorCode::kUsage, [&] { make(RecipeKind::kNvfp4, TensorKind::kWeight, options); });
  EXPECT_THROW(static_cast<void>(make_quantizer({.recipe = RecipeKind::kNvfp4, .format = DType::kE4M3})),
               Error);
  EXPECT_THROW(static_cast<void>(make_quantizer({.recipe = RecipeKind::kBlock, .format = DType::kE2M1})),
               Error);
}

TEST(BlockQuantizers, StackedPartsAreTheWhole) {
  for (const RecipeKind recipe : kBlockRecipes) {
    for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight}) {
      const std::int64_t rows = recipe == RecipeKind::kBlock ? 128 : 32;
      const Tensor whole = values({2 * rows, 96});
      // One amax for all parts, as where codes are gathered.
      const ReduceAmaxes common = [](const MutableTensorView& amaxes) {
        for (std::uint32_t& amax : amaxes.values<std::uint32_t>()) amax = std::bit_cast<std::uint32_t>(40.0F);
      };
      const auto quantizer = make_quantizer({.recipe = recipe, .tensor = tensor, .reduce_amaxes = common});
      const auto expected = quantizer->quantize(whole, kBoth, {});
      const auto all = whole.values<float>();
      const auto half = all.size() / 2;
      const auto first = quantizer->quantize(Tensor::of<float>(all.first(half), {rows, 96}), kBoth, {});
      const auto second = quantizer->quantize(Tensor::of<float>(all.last(half), {rows, 96}), kBoth, {});
      std::array<BlockScaledCodes, 2> sides;
      for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
        const std::array parts = {blocks(first).blocks(direction), blocks(second).blocks(direction)};
        sides[static_cast<std::size_t>(direction)] = stacked(parts);
      }
      const BlockScaledTensor result({2 * rows, 96}, recipe, std::move(sides[0]), std::move(sides[1]));
      EXPECT_TRUE(same_codes(result, *expected, Direction::kRowwise)) << to_string(recipe);
      EXPECT_TRUE(same_codes(result, *expected, Direction::kColumnwise)) << to_string(recipe);
    }
  }
}

TEST(BlockQuantizers, PartsThatCutBlocksCannotBeStacked) {
  const auto quantizer = make(RecipeKind::kBlock, TensorKind::kActivation);
  const auto part = quantizer->quantize(values({64, 32}), kBoth, {});
  const std::array rows = {blocks(part).blocks(Direction::kRowwise),
                           blocks(part).blocks(Direction::kRowwise)};
  EXPECT_NO_THROW(static_cast<void>(stacked(rows)));
  const std::array columns = {blocks(part).blocks(Direction::kColumnwise),
                              blocks(part).blocks(Direction::kColumnwise)};
  EXPECT_THAT(message_of(ErrorCode::kTensor, [&] { static_cast<void>(stacked(columns)); }), HasSubstr("128"));
}

}  // namespace
}  // namespace amaxscope

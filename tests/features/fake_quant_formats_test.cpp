// FakeQuant through the block formats: direction-aware, the same for shards whose boundaries are block
// boundaries, and at rest after one application. Numbers are worked by hand.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "collectives/loopback_communicator.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "tests/features/feature_support.hpp"

namespace amaxscope {
namespace {

using testing_support::layer_with;
using testing_support::LoadedFeatures;
using testing_support::section;

constexpr Usage kBoth{true, true};

LoadedFeatures fake_quant(const std::string& format, const std::string& tensor) {
  return LoadedFeatures(section("s", "{FakeQuant: {enabled: True, quant_format: " + format +
                                         ", gemms: [fprop, dgrad, wgrad], tensors: [" + tensor + "]}}"));
}

/// What the two GEMMs of an operand get.
struct Result {
  std::vector<float> rowwise;
  std::vector<float> columnwise;
};

Result fake(const LoadedFeatures& features, TensorKind tensor, const TensorView& x,
            const LayerDescription& layer, AmaxReducer* reducer = nullptr) {
  const DebugServices services{.amax_scope = AmaxScope::kTensor, .tp_amax = reducer};
  DebugQuantizer quantizer(layer, tensor, nullptr, features.all(), services);
  quantizer.begin_iteration(0);
  const auto made = quantizer.quantize(x, kBoth, {});
  const auto values = [&](Direction direction) {
    EXPECT_EQ(made->format(direction), DType::kF32);
    const Tensor all = made->dequantize(DType::kF32, direction);
    const auto span = all.values<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  return {values(Direction::kRowwise), values(Direction::kColumnwise)};
}

Result fake(const std::string& format, TensorKind tensor, const TensorView& x) {
  const LoadedFeatures features = fake_quant(format, std::string(to_string(tensor)));
  return fake(features, tensor, x, layer_with(RecipeKind::kNone));
}

Tensor with_corner(Shape shape, float first, float second) {
  Tensor x(DType::kF32, shape);
  x.values<float>()[0] = first;
  x.values<float>()[1] = second;
  return x;
}

// 448 and 2^-12 share a rowwise block (scale 1: 2^-12 is below half of the smallest code), and have blocks of
// their own columnwise.
TEST(FakeQuantFormats, Mxfp8GoesThroughTheBlocksOfEachDirection) {
  const Tensor x = with_corner({32, 32}, 448, 0x1p-12F);
  const Result result = fake("MXFP8E4M3", TensorKind::kActivation, x.view());
  EXPECT_EQ(result.rowwise[0], 448.0F);
  EXPECT_EQ(result.rowwise[1], 0.0F);
  EXPECT_EQ(result.columnwise[0], 448.0F);
  EXPECT_EQ(result.columnwise[1], 0x1p-12F);
}

// 1.125 is a code of E4M3; in E5M2 it is a tie between 1 and 1.25 and goes to 1.
TEST(FakeQuantFormats, Mxfp8HasBothFormats) {
  const Tensor x = with_corner({32, 32}, 1.125F, 0);
  EXPECT_EQ(fake("MXFP8E4M3", TensorKind::kGradient, x.view()).rowwise[0], 1.125F);
  EXPECT_EQ(fake("MXFP8E5M2", TensorKind::kGradient, x.view()).rowwise[0], 1.0F);
}

TEST(FakeQuantFormats, BlockScalingBySizeOfTheBlocks) {
  Tensor x(DType::kF32, {2, 128});
  x.values<float>()[0] = 448;
  x.values<float>()[128] = 0x1p-12F;  // below: another block of 1 x 128, the same of 128 x 128 and 128 x 1
  const Result activation = fake("FP8BLOCKE4M3", TensorKind::kActivation, x.view());
  EXPECT_EQ(activation.rowwise[128], 0x1p-12F);
  EXPECT_EQ(activation.columnwise[128], 0.0F);
  const Result weight = fake("FP8BLOCKE4M3", TensorKind::kWeight, x.view());
  EXPECT_EQ(weight.rowwise[128], 0.0F);
  EXPECT_EQ(weight.columnwise[128], 0.0F);
}

// With the tensor's amax 6 in a block its scale is exactly 1 up to the rounding of 1 / 2688, and FP4's codes
// are the values: 0.25 is a tie and becomes 0, 0.75 becomes 1, 2.5 becomes 2.
TEST(FakeQuantFormats, Nvfp4) {
  Tensor x(DType::kF32, {16, 16});
  const std::array<float, 8> values = {6, -3, 0.25F, 0.75F, 2.5F, 1.5F, -0.5F, 4};
  const std::array<float, 8> expected = {6, -3, 0, 1, 2, 1.5F, -0.5F, 4};
  std::ranges::copy(values, x.values<float>().begin());
  const Result result = fake("NVFP4", TensorKind::kWeight, x.view());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(result.rowwise[i], expected[i], 1e-5) << i;
}

// Extents that fill no block.
TEST(FakeQuantFormats, AnyShape) {
  for (const std::string format : {"MXFP8E4M3", "MXFP8E5M2", "NVFP4", "FP8BLOCKE4M3"}) {
    const Tensor x = with_corner({3, 5}, 4, -1);
    const Result result = fake(format, TensorKind::kWeight, x.view());
    ASSERT_EQ(result.rowwise.size(), 15U) << format;
    EXPECT_NEAR(result.rowwise[0], 4.0F, 1e-5) << format;
    EXPECT_NEAR(result.rowwise[1], -1.0F, 1e-5) << format;
    EXPECT_EQ(result.columnwise[14], 0.0F) << format;
  }
}

Tensor noise(Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-2.0F, 2.0F);
  std::uniform_int_distribution<int> exponent(-18, 0);
  Tensor x(DType::kF32, shape);
  for (float& value : x.values<float>()) value = std::ldexp(mantissa(random), exponent(random));
  return x;
}

// A second time changes nothing. NVFP4 is left out: its tensor amax decodes to a neighbour of itself.
TEST(FakeQuantFormats, AreAtRestAfterOneApplication) {
  for (const std::string format : {"FP8E4M3", "FP8E5M2", "MXFP8E4M3", "MXFP8E5M2", "FP8BLOCKE4M3"}) {
    const Tensor x = noise({64, 96}, 3);
    const Result once = fake(format, TensorKind::kActivation, x.view());
    const Tensor rowwise = Tensor::of<float>(once.rowwise, {64, 96});
    const Tensor columnwise = Tensor::of<float>(once.columnwise, {64, 96});
    EXPECT_EQ(fake(format, TensorKind::kActivation, rowwise.view()).rowwise, once.rowwise) << format;
    EXPECT_EQ(fake(format, TensorKind::kActivation, columnwise.view()).columnwise, once.columnwise) << format;
  }
}

// The rows of a weight on two ranks: 64 rows are whole blocks of MXFP8 and NVFP4 in both directions. NVFP4
// needs the amax of the whole tensor for that.
TEST(FakeQuantFormats, ShardsEqualTheWholeWhereBlocksEndAtTheirBoundary) {
  const Tensor whole = noise({128, 128}, 5);
  for (const std::string format : {"MXFP8E4M3", "MXFP8E5M2", "NVFP4"}) {
    const Result expected = fake(format, TensorKind::kWeight, whole.view());
    run_loopback_ranks(2, [&](Communicator& group) {
      const LoadedFeatures features = fake_quant(format, "weight");
      LayerDescription layer = layer_with(RecipeKind::kNone);
      layer.parallel = ParallelMode::kColumn;
      layer.tp_group = &group;
      CollectiveGuard guard(group, {});
      AmaxReducer reducer(guard);
      const std::size_t begin = static_cast<std::size_t>(group.rank()) * 64 * 128;
      const Tensor part = Tensor::of<float>(whole.values<float>().subspan(begin, 64 * 128), {64, 128});
      const Result own = fake(features, TensorKind::kWeight, part.view(), layer, &reducer);
      for (std::size_t i = 0; i < own.rowwise.size(); ++i) {
        ASSERT_EQ(own.rowwise[i], expected.rowwise[begin + i]) << format << " " << i;
        ASSERT_EQ(own.columnwise[i], expected.columnwise[begin + i]) << format << " " << i;
      }
    });
  }
}

}  // namespace
}  // namespace amaxscope

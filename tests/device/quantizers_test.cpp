// Quantizers and DebugQuantizer on tensors of a device: the codes and scales of the CPU, with no wait of the
// host, and what is host-only said by name.
#include <array>

#include "core/error.hpp"
#include "kernels/dequantize.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/kernels/values.hpp"
#include "tests/runtime/quantizers/scripted_feature.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;
using testing_support::always_in;
using testing_support::ScriptedFeature;

constexpr std::array kDirections = {Direction::kRowwise, Direction::kColumnwise};

/// Codes, scales and the amaxes behind them.
void expect_same_codes(const QuantizedTensor& actual, const QuantizedTensor& expected, Direction direction,
                       std::string_view what) {
  if (const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&expected)) {
    const BlockScaledView wanted = blocks->blocks(direction);
    const BlockScaledView got = dynamic_cast<const BlockScaledTensor&>(actual).blocks(direction);
    EXPECT_TRUE(same(got.codes, wanted.codes)) << what;
    EXPECT_TRUE(same(got.scales, wanted.scales)) << what;
    EXPECT_EQ(got.layout, wanted.layout) << what;
    ASSERT_EQ(got.device_amax.has_value(), wanted.tensor_scale.has_value()) << what;
    if (wanted.tensor_scale) {
      EXPECT_EQ(to_host(*got.device_amax).values<std::uint32_t>()[0],
                std::bit_cast<std::uint32_t>(wanted.tensor_scale->amax))
          << what;
      EXPECT_EQ(got.tensor_scale->factor, wanted.tensor_scale->factor) << what;
    }
    return;
  }
  const auto& wanted = dynamic_cast<const Float8Tensor&>(expected);
  const auto& got = dynamic_cast<const Float8Tensor&>(actual);
  EXPECT_TRUE(same(got.codes(direction), wanted.codes(direction))) << what;
  EXPECT_EQ(got.scale(), wanted.scale()) << what;
  EXPECT_EQ(got.scale_inv(), wanted.scale_inv()) << what;
}

struct Case {
  std::string name;
  RecipeKind recipe;
  TensorKind tensor;
  RecipeOptions options = {};
};

std::vector<Case> cases() {
  RecipeOptions plain_nvfp4;
  plain_nvfp4.nvfp4.four_over_six = true;
  plain_nvfp4.nvfp4.random_hadamard = false;
  plain_nvfp4.nvfp4.stochastic_rounding = false;
  std::vector<Case> result;
  for (const RecipeKind recipe :
       {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
      result.push_back({fmt::format("{} {}", to_string(recipe), to_string(tensor)), recipe, tensor});
    }
  }
  result.push_back({"nvfp4 four over six", RecipeKind::kNvfp4, TensorKind::kActivation, plain_nvfp4});
  return result;
}

std::shared_ptr<Quantizer> quantizer_of(const Case& c, ReduceAmaxes reduce = {}) {
  return make_quantizer({.recipe = c.recipe,
                         .tensor = c.tensor,
                         .name = "fc1.tensor",
                         .reduce_amaxes = std::move(reduce),
                         .options = c.options});
}

TEST_F(DeviceTest, QuantizersMakeTheCodesOfTheCpuAndTheHostWaitsForNothing) {
  const EmulatedDevice device;
  fake::set_stream_delay(std::chrono::microseconds(200));
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor x = test::converted(test::sample_tensor({64, 96}, 11), type);
    const Tensor there = device.put(x.view());
    for (const Case& c : cases()) {
      const auto on_cpu = quantizer_of(c);
      const auto on_device = quantizer_of(c);
      const auto expected = on_cpu->quantize(x.view(), {true, true}, {});
      const int waits = fake::host_waits();
      const auto actual = on_device->quantize(there.view(), {true, true}, {});
      EXPECT_EQ(fake::host_waits(), waits) << c.name;
      for (const Direction direction : kDirections) {
        expect_same_codes(*actual, *expected, direction, c.name);
        for (const DType to : {DType::kF32, DType::kBF16}) {
          EXPECT_TRUE(same(actual->dequantize(to, direction), expected->dequantize(to, direction))) << c.name;
        }
      }
      // Into what is there, as a cached weight is.
      const Tensor next = test::converted(test::sample_tensor({64, 96}, 12), type);
      on_cpu->update(next.view(), *expected, {});
      on_device->update(device.put(next.view()).view(), *actual, {});
      for (const Direction direction : kDirections) expect_same_codes(*actual, *expected, direction, c.name);
    }
  }
}

TEST_F(DeviceTest, AmaxesAreReducedWhereTheyAre) {
  const EmulatedDevice device;
  const Tensor x = test::sample_tensor({32, 32}, 5);
  const Tensor there = device.put(x.view());
  for (const Case& c : cases()) {
    if (c.recipe != RecipeKind::kCurrent && c.recipe != RecipeKind::kNvfp4) continue;
    const Tensor larger = Tensor::of<std::uint32_t>({0x42C80000U, 0x42C80000U}, {2});  // 100
    const auto reduce = [&](const MutableTensorView& amaxes) {
      copy_tensor(amaxes, amaxes.device().kind == DeviceKind::kCpu
                              ? larger.view().slice(0, amaxes.numel())
                              : device.put(larger.view().slice(0, amaxes.numel())).view());
    };
    const auto expected = quantizer_of(c, reduce)->quantize(x.view(), {true, true}, {});
    const auto actual = quantizer_of(c, reduce)->quantize(there.view(), {true, true}, {});
    for (const Direction direction : kDirections) expect_same_codes(*actual, *expected, direction, c.name);
  }
}

TEST_F(DeviceTest, DelayedScalingKeepsItsAmaxesThereUntilTheStepEnds) {
  const EmulatedDevice device;
  DelayedScalingState on_cpu({.history_length = 3}, nullptr);
  DelayedScalingState on_device({.history_length = 3}, nullptr);
  std::vector<std::unique_ptr<Float8Quantizer>> cpu;
  std::vector<std::unique_ptr<Float8Quantizer>> there;
  const auto add = [&](const std::string& name, DType format) {
    cpu.push_back(std::make_unique<Float8Quantizer>(on_cpu, on_cpu.add(name, format)));
    there.push_back(std::make_unique<Float8Quantizer>(on_device, on_device.add(name, format)));
  };
  add("a", DType::kE4M3);
  add("b", DType::kE5M2);
  std::vector<std::shared_ptr<QuantizedTensor>> kept;
  std::vector<Tensor> kept_codes;
  for (unsigned step = 0; step < 5; ++step) {
    if (step == 2) add("c", DType::kE4M3);  // while amaxes of this step wait on the device
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      const Tensor x = test::sample_tensor({16, 32}, 40 + 10 * step + static_cast<unsigned>(i));
      const Tensor x_there = device.put(x.view());
      const auto expected = cpu[i]->quantize(x.view(), {true, true}, {});
      const int waits = fake::host_waits();
      const auto actual = there[i]->quantize(x_there.view(), {true, true}, {});
      EXPECT_LE(fake::host_waits() - waits, 1) << "page-locked memory for new scales, made once";
      for (const Direction direction : kDirections)
        expect_same_codes(*actual, *expected, direction, "delayed");
      kept.push_back(actual);
      kept_codes.push_back(expected->dequantize(DType::kF32, Direction::kRowwise));
    }
    on_cpu.update();
    const int fetches = fake::calls("cudaEventSynchronize");
    on_device.update();
    EXPECT_EQ(fake::calls("cudaEventSynchronize"), fetches + 1) << "once a step";
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_EQ(on_device.slot(i).scale, on_cpu.slot(i).scale);
      EXPECT_EQ(on_device.slot(i).history, on_cpu.slot(i).history);
    }
  }
  // Codes of earlier steps are still under the scales they were made with.
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(same(kept[i]->dequantize(DType::kF32, Direction::kRowwise), kept_codes[i].view())) << i;
  }
  const EmulatedDevice other;
  const Tensor x = other.put(test::sample_tensor({4, 4}, 1).view());
  EXPECT_THROW(static_cast<void>(there[0]->quantize(x.view(), {}, {})), Error) << "a state serves one stream";
}

TEST_F(DeviceTest, UsageIsRemadeWhereTheFormatAllowsIt) {
  const EmulatedDevice device;
  const Tensor x = test::sample_tensor({64, 32}, 3);
  const Tensor there = device.put(x.view());
  const Case current{"current", RecipeKind::kCurrent, TensorKind::kActivation};
  const auto expected = quantizer_of(current)->quantize(x.view(), {true, false}, {});
  const auto actual = quantizer_of(current)->quantize(there.view(), {true, false}, {});
  for (const Usage usage : {Usage{true, true}, Usage{false, true}, Usage{true, false}}) {
    expected->update_usage(usage);
    actual->update_usage(usage);
    for (const Direction direction : kDirections) {
      if (usage.has(direction)) expect_same_codes(*actual, *expected, direction, "usage");
    }
  }
  // Square blocks, through the host. NVFP4's have an amax in device memory.
  RecipeOptions square;
  square.nvfp4.stochastic_rounding = false;
  for (const RecipeKind recipe : {RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const Case weight{std::string(to_string(recipe)), recipe, TensorKind::kWeight, square};
    const auto wanted = quantizer_of(weight)->quantize(x.view(), {true, true}, {});
    const auto made = quantizer_of(weight)->quantize(there.view(), {true, false}, {});
    made->update_usage({true, true});
    for (const Direction direction : kDirections)
      expect_same_codes(*made, *wanted, direction, "made from the other");
  }
}

TEST_F(DeviceTest, CodesOfBlocksAreStackedThere) {
  const EmulatedDevice device;
  const Tensor x = test::sample_tensor({256, 64}, 6);
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const auto quantizer = quantizer_of({"", recipe, TensorKind::kActivation});
    std::vector<std::shared_ptr<QuantizedTensor>> parts;
    for (const std::int64_t part : {0, 1}) {
      TensorView half = x.view().slice(part * 128 * 64, 128 * 64).reshaped({128, 64});
      parts.push_back(quantizer->quantize(device.put(half).view(), {true, true}, {}));
    }
    for (const Direction direction : kDirections) {
      std::vector<BlockScaledView> there;
      std::vector<BlockScaledCodes> here;
      std::vector<BlockScaledView> here_views;
      for (const auto& part : parts) {
        there.push_back(dynamic_cast<const BlockScaledTensor&>(*part).blocks(direction));
        here.push_back(to_host(there.back()));
      }
      for (const BlockScaledCodes& codes : here) here_views.push_back(codes.view());
      const BlockScaledCodes expected = stacked(here_views);
      const BlockScaledCodes actual = stacked(there);
      EXPECT_EQ(actual.codes.device(), device.device());
      EXPECT_TRUE(same(actual.codes, expected.codes)) << to_string(recipe);
      EXPECT_TRUE(same(actual.scales, expected.scales)) << to_string(recipe);
      // Decoded with the first part's amax.
      Tensor wanted(DType::kF32, {256, 64});
      Tensor got = device.tensor(DType::kF32, {256, 64});
      dequantize_blocks(expected.view(), wanted);
      dequantize_blocks(actual.view(), got);
      EXPECT_TRUE(same(got, wanted)) << to_string(recipe);
    }
  }
}

class DeviceDebugQuantizer : public DeviceTest {
 protected:
  std::unique_ptr<DebugQuantizer> make(std::vector<Feature*> features,
                                       TensorKind tensor = TensorKind::kActivation) {
    auto quantizer = std::make_unique<DebugQuantizer>(
        layer_, tensor,
        is_result(tensor) ? nullptr
                          : std::make_shared<Float8CurrentScalingQuantizer>(
                                DType::kE4M3, CurrentScalingOptions{}, ReduceAmaxes{}),
        std::move(features), services_);
    quantizer->begin_iteration(0);
    return quantizer;
  }
  static LayerDescription describe() {
    LayerDescription layer;
    layer.name = "fc1";
    layer.recipe = RecipeKind::kCurrent;
    layer.compute_dtype = DType::kBF16;
    return layer;
  }
  LayerDescription layer_ = describe();
  DebugServices services_;
};

TEST_F(DeviceDebugQuantizer, EveryPlanGivesWhatItGivesOnTheCpu) {
  const EmulatedDevice device;
  const Tensor x = test::sample_tensor({32, 48}, 8);
  const Tensor there = device.put(x.view());
  // fprop (rowwise) modified, wgrad (columnwise) in high precision.
  ScriptedFeature modifier("Modifier");
  modifier.to_codes = true;
  modifier.modifies = always_in({Gemm::kFprop}, TensorKind::kActivation);
  modifier.modify = testing_support::codes_under(8.0F);
  ScriptedFeature disabling("Disabling");
  disabling.fp8 = [](Gemm gemm, std::int64_t) {
    return gemm == Gemm::kWgrad ? Decision{false, std::nullopt} : Decision::always();
  };
  for (const bool with_features : {false, true}) {
    std::vector<Feature*> features;
    if (with_features) features = {&modifier, &disabling};
    const auto on_cpu = make(features);
    const auto on_device = make(features);
    const auto expected = on_cpu->quantize(x.view(), {true, true}, {});
    const int waits = fake::host_waits();
    const auto actual = on_device->quantize(there.view(), {true, true}, {});
    EXPECT_LE(fake::host_waits() - waits, with_features ? 1 : 0)
        << "page-locked memory for a scale of the host";
    for (const Direction direction : kDirections) {
      EXPECT_EQ(actual->format_name(direction), expected->format_name(direction));
      EXPECT_TRUE(
          same(actual->dequantize(DType::kF32, direction), expected->dequantize(DType::kF32, direction)));
    }
    on_cpu->update(x.view(), *expected, {});
    on_device->update(there.view(), *actual, {});
    EXPECT_TRUE(same(actual->dequantize(DType::kF32, Direction::kRowwise),
                     expected->dequantize(DType::kF32, Direction::kRowwise)));
  }
}

TEST_F(DeviceDebugQuantizer, AResultIsModifiedInPlaceOnItsStream) {
  const EmulatedDevice device;
  ScriptedFeature modifier("Modifier");
  modifier.modifies = always_in({Gemm::kFprop}, TensorKind::kOutput);
  modifier.modify = [&](const ModifyContext& context) {
    const auto codes = quantize_float8(context.x, DType::kE4M3, 4.0F, {true, false});
    return std::make_shared<HighPrecisionTensor>(codes->dequantize(context.x.dtype(), Direction::kRowwise));
  };
  Tensor x = test::sample_tensor({8, 24}, 9);
  Tensor there = device.put(x.view());
  make({&modifier}, TensorKind::kOutput)->process_gemm_output(x, {});
  make({&modifier}, TensorKind::kOutput)->process_gemm_output(there, {});
  EXPECT_TRUE(same(there.view(), x.view()));
}

TEST_F(DeviceDebugQuantizer, StatisticsOfATensorOnADeviceAreThoseOfTheCpu) {
  const EmulatedDevice device;
  const Tensor x = test::sample_tensor({32, 48}, 21);
  const Tensor there = device.put(x.view());
  std::vector<TensorMoments> moments;
  std::vector<std::uint32_t> amaxes;
  ScriptedFeature looks("Looks");
  looks.inspects = [](std::int64_t) { return Decision::always(); };
  looks.inspect = [&](const InspectContext& context) {
    moments.push_back(context.moments(MomentOrder::kFourth));
    amaxes.push_back(context.amax());
  };
  static_cast<void>(make({&looks})->quantize(x.view(), {true, true}, {}));
  static_cast<void>(make({&looks})->quantize(there.view(), {true, true}, {}));
  ASSERT_EQ(moments.size(), 2U);
  EXPECT_EQ(amaxes[0], amaxes[1]);
  EXPECT_EQ(moments[0].numel, moments[1].numel);
  EXPECT_EQ(moments[0].min, moments[1].min);
  EXPECT_EQ(moments[0].max, moments[1].max);
  EXPECT_NEAR(moments[0].sum, moments[1].sum, 1e-9);
  EXPECT_NEAR(moments[0].m2, moments[1].m2, 1e-6 * moments[0].m2);
}

TEST_F(DeviceDebugQuantizer, AnErrorAtAnyCallLeavesNothingBehind) {
  const Tensor x = test::sample_tensor({32, 32}, 2);
  const auto run = [&](const EmulatedDevice& device) {
    const Tensor there = device.put(x.view());
    for (const RecipeKind recipe : {RecipeKind::kCurrent, RecipeKind::kNvfp4}) {
      const auto quantizer = quantizer_of({"", recipe, TensorKind::kActivation});
      const auto codes = quantizer->quantize(there.view(), {true, true}, {});
      static_cast<void>(to_host(codes->dequantize(DType::kF32, Direction::kRowwise)));
    }
  };
  {
    const EmulatedDevice device;
    run(device);
  }
  int failed = 0;
  for (const std::string& function : fake::called()) {
    if (function.starts_with("cudaFree") || function.starts_with("cudaMemPoolDestroy") ||
        function.ends_with("Destroy") || function.starts_with("cudaStream") || function == "cudaGetDevice")
      continue;  // of tearing down, and of the test itself
    for (int nth = 1; nth <= 40; ++nth) {
      const EmulatedDevice device;
      fake::fail_at(function, nth, cudaErrorUnknown);
      try {
        run(device);
        break;  // there are fewer calls
      } catch (const std::exception& error) {
        ++failed;
      }
    }
    fake::reset();
  }
  EXPECT_GT(failed, 20) << "errors were injected into memory, copies, events and launches";
}

}  // namespace
}  // namespace amaxscope::testing

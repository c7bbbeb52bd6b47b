// What a DebugQuantizer does with tensors, by the plan.
#include <gmock/gmock.h>

#include "core/error.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "tests/runtime/quantizers/scripted_feature.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::always_in;
using testing_support::codes_under;
using testing_support::CountingQuantizer;
using testing_support::fill_with;
using testing_support::named_config;
using testing_support::ScriptedFeature;

constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;
constexpr Usage kBoth{true, true};

class DebugQuantize : public testing::Test {
 protected:
  DebugQuantize() {
    layer_.name = "fc1";
    feature_.inspect = [this](const InspectContext& context) {
      seen_ = {context.x.data(), context.has_original, context.rowwise, context.columnwise,
               context.quantizer};
    };
    disabler_.fp8 = [this](Gemm gemm, std::int64_t iteration) {
      return Decision{!disabled_(gemm, iteration), iteration + 1};
    };
  }

  DebugQuantizer& quantizer(TensorKind tensor, std::int64_t iteration = 0) {
    auto parent = is_result(tensor) ? nullptr : parent_;
    quantizer_ = std::make_unique<DebugQuantizer>(layer_, tensor, parent,
                                                  std::vector<Feature*>{&feature_, &disabler_}, services_);
    quantizer_->begin_iteration(iteration);
    return *quantizer_;
  }
  void inspect_always() {
    feature_.inspects = [](std::int64_t) { return Decision::always(); };
  }
  static DebugQuantizedTensor& debug(const std::shared_ptr<QuantizedTensor>& tensor) {
    return dynamic_cast<DebugQuantizedTensor&>(*tensor);
  }

  struct Seen {
    const void* original = nullptr;
    bool has_original = false;
    const QuantizedTensor* rowwise = nullptr;
    const QuantizedTensor* columnwise = nullptr;
    const Quantizer* quantizer = nullptr;
  };

  LayerDescription layer_;
  DebugServices services_;
  std::shared_ptr<CountingQuantizer> parent_ = std::make_shared<CountingQuantizer>();
  ScriptedFeature feature_{"Scripted", "first"};
  std::function<bool(Gemm, std::int64_t)> disabled_ = [](Gemm, std::int64_t) { return false; };
  ScriptedFeature disabler_{"Disabler", "second"};
  Seen seen_;
  std::unique_ptr<DebugQuantizer> quantizer_;
  Tensor x_ = Tensor::of({1.0F, 2.0F, 3.0F, 4.0F}, Shape{2, 2});
};

TEST_F(DebugQuantize, TheRecipeQuantizesOnceForBothDirections) {
  inspect_always();
  const auto result = quantizer(TensorKind::kActivation).quantize(x_, kBoth, {});
  EXPECT_THAT(parent_->asked, ElementsAre(kBoth));
  EXPECT_TRUE(debug(result).shared());
  EXPECT_EQ(result->usage(), kBoth);
  EXPECT_EQ(seen_.original, x_.view().data());
  EXPECT_TRUE(seen_.has_original);
  EXPECT_EQ(seen_.rowwise, debug(result).get_tensor(false).get());
  EXPECT_EQ(seen_.columnwise, seen_.rowwise) << "one object in both directions";
  EXPECT_EQ(seen_.quantizer, parent_.get());
}

TEST_F(DebugQuantize, ADirectionThatIsNotWantedIsNotMade) {
  inspect_always();
  const auto result = quantizer(TensorKind::kActivation).quantize(x_, {true, false}, {});
  EXPECT_THAT(parent_->asked, ElementsAre(Usage{true, false}));
  EXPECT_EQ(result->usage(), (Usage{true, false}));
  EXPECT_EQ(seen_.columnwise, nullptr);
  // It can still be had from the same codes, without another quantization.
  result->update_usage({false, true});
  EXPECT_EQ(result->operand(kColumn).rows(), 2);
  EXPECT_EQ(parent_->asked.size(), 1U);
}

TEST_F(DebugQuantize, WithoutADirectionNothingIsQuantizedButItIsInspected) {
  inspect_always();
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kActivation);
  const auto result = quantizer(TensorKind::kActivation).quantize(x_, {false, false}, {});
  EXPECT_TRUE(parent_->asked.empty());
  EXPECT_EQ(result->usage(), (Usage{false, false}));
  EXPECT_THAT(feature_.calls, ElementsAre("inspect"));
  EXPECT_EQ(seen_.rowwise, nullptr);
}

TEST_F(DebugQuantize, MixedPlansGiveTwoObjects) {
  inspect_always();
  disabled_ = [](Gemm gemm, std::int64_t) { return gemm == Gemm::kWgrad; };
  const auto result = quantizer(TensorKind::kActivation).quantize(x_, kBoth, {});
  EXPECT_THAT(parent_->asked, ElementsAre(Usage{true, false}));
  EXPECT_FALSE(debug(result).shared());
  EXPECT_EQ(result->format(kRow), DType::kE4M3);
  EXPECT_EQ(result->format(kColumn), DType::kF32);
  EXPECT_NE(seen_.rowwise, seen_.columnwise);
}

TEST_F(DebugQuantize, HighPrecisionIsTheTensorItselfInTheComputeDtype) {
  disabled_ = [](Gemm, std::int64_t) { return true; };
  const auto alias = quantizer(TensorKind::kWeight).quantize(x_, kBoth, {});
  EXPECT_TRUE(debug(alias).shared());
  EXPECT_EQ(alias->operand(kRow).data.data(), x_.view().data()) << "copied although the dtype is the same";
  layer_.compute_dtype = DType::kBF16;
  const auto cast = quantizer(TensorKind::kWeight).quantize(x_, kBoth, {});
  EXPECT_EQ(cast->format(kRow), DType::kBF16);
  EXPECT_EQ(cast->operand(kColumn).data.dtype(), DType::kBF16);
  EXPECT_EQ(cast->operand(kRow).data.values<BF16>()[3].bits, 0x4080);  // 4
  EXPECT_TRUE(parent_->asked.empty());
}

TEST_F(DebugQuantize, OneCallWhenBothDirectionsAreModifiedAlike) {
  feature_.modifies = always_in({Gemm::kFprop, Gemm::kWgrad}, TensorKind::kActivation);
  feature_.modify = fill_with(7);
  const auto result = quantizer(TensorKind::kActivation).quantize(x_, kBoth, {});
  EXPECT_THAT(feature_.calls, ElementsAre("modify rowwise columnwise"));
  EXPECT_TRUE(debug(result).shared());
  EXPECT_TRUE(parent_->asked.empty());
  feature_.calls.clear();
  const auto one = quantizer(TensorKind::kActivation).quantize(x_, {false, true}, {});
  EXPECT_THAT(feature_.calls, ElementsAre("modify columnwise"));
  EXPECT_EQ(one->usage(), (Usage{false, true}));
}

TEST_F(DebugQuantize, OtherKeysInTheOtherDirectionAreTwoCallsColumnwiseFirst) {
  FeatureConfig config = named_config("Keyed", "s");
  config.selected[{Gemm::kFprop, TensorKind::kActivation}].values["margin"] =
      ConfigValue(std::int64_t{1}, {});
  config.selected[{Gemm::kWgrad, TensorKind::kActivation}].values["margin"] =
      ConfigValue(std::int64_t{2}, {});
  ScriptedFeature keyed(config);
  keyed.modifies = always_in({Gemm::kFprop, Gemm::kWgrad}, TensorKind::kActivation);
  keyed.modify = [](const ModifyContext& context) {
    return fill_with(static_cast<float>(context.params.get_integer("margin", 0)))(context);
  };
  DebugQuantizer activation(layer_, TensorKind::kActivation, parent_, {&keyed}, services_);
  activation.begin_iteration(0);
  const auto result = activation.quantize(x_, kBoth, {});
  EXPECT_THAT(keyed.calls, ElementsAre("modify columnwise", "modify rowwise"));
  EXPECT_EQ(result->dequantize(DType::kF32, kRow).values<float>()[0], 1.0F);
  EXPECT_EQ(result->dequantize(DType::kF32, kColumn).values<float>()[0], 2.0F);

  config.selected[{Gemm::kWgrad, TensorKind::kActivation}].values["margin"] =
      ConfigValue(std::int64_t{1}, {});
  ScriptedFeature same(config);
  same.modifies = keyed.modifies;
  same.modify = keyed.modify;
  DebugQuantizer alike(layer_, TensorKind::kActivation, parent_, {&same}, services_);
  alike.begin_iteration(0);
  static_cast<void>(alike.quantize(x_, kBoth, {}));
  EXPECT_THAT(same.calls, ElementsAre("modify rowwise columnwise"));
}

TEST_F(DebugQuantize, TheOtherDirectionKeepsTheRecipe) {
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kWeight);
  feature_.to_codes = true;
  feature_.modify = codes_under(2);
  const auto result = quantizer(TensorKind::kWeight).quantize(x_, kBoth, {});
  EXPECT_THAT(parent_->asked, ElementsAre(Usage{false, true}));
  EXPECT_EQ(result->operand(kRow).scale_inv, 0.5F);
  EXPECT_EQ(result->operand(kColumn).scale_inv, 1.0F);
  EXPECT_EQ(result->usage(), kBoth);
}

TEST_F(DebugQuantize, AFeatureIsHeldToWhatItSaid) {
  feature_.modifies = always_in({Gemm::kFprop, Gemm::kDgrad}, TensorKind::kWeight);
  const auto fails_with = [&](Usage usage, const std::string& text) {
    try {
      static_cast<void>(quantizer(TensorKind::kWeight).quantize(x_, usage, {}));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      EXPECT_THAT(error.what(), HasSubstr("Scripted of section first"));
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  feature_.modify = [](const ModifyContext&) { return nullptr; };
  fails_with({true, false}, "returned nothing");
  fails_with({false, true}, "returned nothing");
  feature_.to_codes = true;
  feature_.modify = [](const ModifyContext& context) {
    return quantize_float8(context.x, DType::kE4M3, 1, {!context.usage.rowwise, !context.usage.columnwise});
  };
  fails_with({true, false}, "without the rowwise direction");
  fails_with({false, true}, "without the columnwise direction");
  feature_.modify = fill_with(1);
  fails_with({true, false}, "it had said that it returns codes");
  feature_.to_codes = false;
  feature_.modify = codes_under(1);
  fails_with({false, true}, "it had said that it returns high precision");
}

TEST_F(DebugQuantize, HooksSeeTheIterationThatBegan) {
  inspect_always();
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kActivation);
  feature_.modify = fill_with(1);
  static_cast<void>(quantizer(TensorKind::kActivation, 7).quantize(x_, kBoth, {}));
  EXPECT_THAT(feature_.iterations, ElementsAre(7, 7));
}

TEST_F(DebugQuantize, InspectorsRunInOrderAndShareTheMoments) {
  ScriptedFeature second("Second");
  std::vector<std::string> order;
  const TensorMoments* moments = nullptr;
  inspect_always();
  second.inspects = feature_.inspects;
  feature_.inspect = [&](const InspectContext& context) {
    order.emplace_back("first");
    moments = &context.moments();
  };
  second.inspect = [&](const InspectContext& context) {
    order.emplace_back("second");
    EXPECT_EQ(&context.moments(), moments);
    EXPECT_EQ(context.moment.microbatch, 3);
    EXPECT_EQ(context.moment.phase, Phase::kEval);
  };
  DebugQuantizer activation(layer_, TensorKind::kActivation, parent_, {&feature_, &second}, services_);
  activation.begin_iteration(0);
  static_cast<void>(activation.quantize(x_, kBoth, {.phase = Phase::kEval, .microbatch = 3}));
  EXPECT_THAT(order, ElementsAre("first", "second"));
}

TEST_F(DebugQuantize, UpdateFollowsThePlanOfNow) {
  DebugQuantizer& weight = quantizer(TensorKind::kWeight, 0);
  disabled_ = [](Gemm gemm, std::int64_t iteration) { return iteration == 1 && gemm == Gemm::kFprop; };
  const auto cached = weight.quantize(x_, kBoth, {});
  const std::shared_ptr<QuantizedTensor> first = debug(cached).get_tensor(false);

  const Tensor fresh = Tensor::of({5.0F, 6.0F, 7.0F, 8.0F}, Shape{2, 2});
  weight.begin_iteration(1);
  weight.update(fresh, *cached, {});
  EXPECT_EQ(cached->format(kRow), DType::kF32) << "the plan of the iteration that made it was used";
  EXPECT_EQ(cached->operand(kRow).data.data(), fresh.view().data());
  EXPECT_EQ(cached->format(kColumn), DType::kE4M3);
  EXPECT_EQ(cached->dequantize(DType::kF32, kColumn).values<float>()[3], 8.0F);
  EXPECT_FALSE(debug(cached).shared());
  EXPECT_EQ(debug(cached).get_tensor(true)->usage(), (Usage{false, true}))
      << "codes that nobody uses were kept";

  weight.begin_iteration(2);
  weight.update(x_, *cached, {});
  EXPECT_TRUE(debug(cached).shared());
  EXPECT_EQ(cached->format(kRow), DType::kE4M3);
  EXPECT_EQ(cached->dequantize(DType::kF32, kRow).values<float>()[3], 4.0F);
  EXPECT_EQ(cached->usage(), kBoth);
}

TEST_F(DebugQuantize, UpdateRefreshesTheRecipesCodesInPlace) {
  inspect_always();
  DebugQuantizer& weight = quantizer(TensorKind::kWeight, 0);
  const auto cached = weight.quantize(x_, kBoth, {});
  const std::shared_ptr<QuantizedTensor> member = debug(cached).get_tensor(false);
  const Tensor fresh = Tensor::of({5.0F, 6.0F, 7.0F, 8.0F}, Shape{2, 2});
  weight.begin_iteration(1);
  weight.update(fresh, *cached, {});
  EXPECT_EQ(debug(cached).get_tensor(false), member);
  EXPECT_EQ(debug(cached).get_tensor(true), member);
  EXPECT_EQ(parent_->asked.size(), 1U);
  EXPECT_EQ(parent_->updates, 1);
  EXPECT_EQ(member->dequantize(DType::kF32, kColumn).values<float>()[0], 5.0F);
  EXPECT_EQ(seen_.original, fresh.view().data());
  EXPECT_THAT(feature_.iterations, ElementsAre(0, 1));
}

TEST_F(DebugQuantize, UpdateDoesNotMistakeAModifiedMemberForTheRecipes) {
  feature_.modifies = [](Gemm, TensorKind, std::int64_t iteration) {
    return Decision{iteration == 0, iteration + 1};
  };
  feature_.to_codes = true;
  feature_.modify = codes_under(2);
  for (const Usage usage : {kBoth, Usage{true, false}, Usage{false, true}}) {
    parent_->asked.clear();
    DebugQuantizer& weight = quantizer(TensorKind::kWeight, 0);
    const auto cached = weight.quantize(x_, usage, {});
    weight.begin_iteration(1);
    weight.update(x_, *cached, {});
    EXPECT_EQ(parent_->updates, 0);
    EXPECT_THAT(parent_->asked, ElementsAre(usage));
    EXPECT_EQ(cached->operand(usage.rowwise ? kRow : kColumn).scale_inv, 1.0F);
  }
}

TEST_F(DebugQuantize, AFeatureIsHeldToWhatItSaidInAnUpdateToo) {
  feature_.modifies = always_in({Gemm::kFprop, Gemm::kDgrad}, TensorKind::kWeight);
  for (const Usage usage : {Usage{true, false}, Usage{false, true}}) {
    feature_.modify = fill_with(1);
    DebugQuantizer& weight = quantizer(TensorKind::kWeight);
    const auto cached = weight.quantize(x_, usage, {});
    feature_.modify = [](const ModifyContext&) { return nullptr; };
    EXPECT_THROW(weight.update(x_, *cached, {}), Error);
  }
}

TEST_F(DebugQuantize, UpdateKeepsToTheDirectionsOfTheTarget) {
  DebugQuantizer& weight = quantizer(TensorKind::kWeight, 0);
  const auto cached = weight.quantize(x_, {true, false}, {});
  weight.update(x_, *cached, {});
  EXPECT_EQ(cached->usage(), (Usage{true, false}));
  const auto foreign = quantize_float8(x_, DType::kE4M3, 1, kBoth);
  EXPECT_THROW(weight.update(x_, *foreign, {}), Error);
  EXPECT_THROW(weight.update(Tensor(DType::kF32, {1, 2}), *cached, {}), Error);
}

TEST_F(DebugQuantize, WrapTakesAWeightThatExistsInFp8) {
  inspect_always();
  std::shared_ptr<QuantizedTensor> primary = quantize_float8(x_, DType::kE4M3, 1, kBoth);
  const auto wrapped = quantizer(TensorKind::kWeight).wrap(primary, {});
  EXPECT_EQ(debug(wrapped).get_tensor(false), primary);
  EXPECT_TRUE(debug(wrapped).shared());
  EXPECT_FALSE(seen_.has_original);
  EXPECT_EQ(seen_.original, nullptr);
  EXPECT_EQ(seen_.rowwise, primary.get());
  EXPECT_TRUE(parent_->asked.empty());
}

TEST_F(DebugQuantize, WrapNamesTheFeatureThatAsksForMore) {
  std::shared_ptr<QuantizedTensor> primary = quantize_float8(x_, DType::kE4M3, 1, kBoth);
  const auto refused = [&](const std::string& text) {
    try {
      static_cast<void>(quantizer(TensorKind::kWeight).wrap(primary, {}));
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_THAT(error.what(), HasSubstr("layer fc1"));
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  };
  disabled_ = [](Gemm gemm, std::int64_t) { return gemm == Gemm::kDgrad; };
  refused("Disabler of section second cannot change what dgrad gets");
  disabled_ = [](Gemm, std::int64_t) { return false; };
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kWeight);
  refused("Scripted of section first cannot change what fprop gets");
  feature_.modifies = nullptr;
  parent_ = nullptr;
  refused("no recipe");
}

TEST_F(DebugQuantize, AResultIsModifiedInPlaceAndThenInspected) {
  inspect_always();
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kOutput);
  feature_.modify = fill_with(9);
  float inspected = 0;
  feature_.inspect = [&](const InspectContext& context) {
    inspected = context.x.values<float>()[0];
    EXPECT_EQ(context.rowwise, nullptr);
    EXPECT_EQ(context.columnwise, nullptr);
  };
  DebugQuantizer& output = quantizer(TensorKind::kOutput);
  output.process_gemm_output(x_.mutable_view(), {});
  EXPECT_THAT(x_.values<float>(), testing::Each(9.0F));
  EXPECT_EQ(inspected, 9.0F);
  EXPECT_THAT(feature_.calls, ElementsAre("modify rowwise", "inspect"));
  EXPECT_THROW(static_cast<void>(output.quantize(x_, kBoth, {})), Error);
  EXPECT_THROW(quantizer(TensorKind::kWeight).process_gemm_output(x_.mutable_view(), {}), Error);
}

TEST_F(DebugQuantize, AModifiedResultKeepsItsDtype) {
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kOutput);
  feature_.modify = fill_with(1.00390625F);  // between two bf16 numbers: ties to even, 1
  Tensor output = Tensor::of({to_bf16(3.0F)}, Shape{1, 1});
  quantizer(TensorKind::kOutput).process_gemm_output(output.mutable_view(), {});
  EXPECT_EQ(output.values<BF16>()[0].bits, 0x3F80);
}

TEST_F(DebugQuantize, AnInspectingHookThatFailsCanBePassedOver) {
  inspect_always();
  feature_.inspect = [](const InspectContext&) { throw std::runtime_error("no space left"); };
  EXPECT_THROW(static_cast<void>(quantizer(TensorKind::kWeight).quantize(x_, kBoth, {})), std::runtime_error);
  std::vector<std::string> heard;
  services_.hook_failed = [&](const Feature& feature, const InspectedTensor& tensor, bool altering,
                              const std::exception& error) {
    heard.push_back(feature.config().name + " " + tensor.name + (altering ? " altering " : " ") +
                    error.what());
  };
  const auto result = quantizer(TensorKind::kWeight).quantize(x_, kBoth, {});
  EXPECT_EQ(result->usage(), kBoth);
  EXPECT_THAT(heard, ElementsAre("Scripted weight no space left"));

  heard.clear();
  feature_.modifies = always_in({Gemm::kFprop}, TensorKind::kWeight);
  feature_.modify = [](const ModifyContext&) -> std::shared_ptr<QuantizedTensor> {
    throw std::runtime_error("bad");
  };
  EXPECT_THROW(static_cast<void>(quantizer(TensorKind::kWeight).quantize(x_, kBoth, {})), std::runtime_error);
  EXPECT_THAT(heard, ElementsAre("Scripted weight altering bad"));
}

TEST_F(DebugQuantize, AnEmptyTensorIsLegalInEveryPlan) {
  inspect_always();
  disabled_ = [](Gemm gemm, std::int64_t) { return gemm == Gemm::kWgrad; };
  const Tensor empty(DType::kF32, Shape{0, 4});
  const auto result = quantizer(TensorKind::kActivation).quantize(empty, kBoth, {});
  EXPECT_EQ(result->shape(), (Shape{0, 4}));
  EXPECT_EQ(result->operand(kColumn).rows(), 4);
}

}  // namespace
}  // namespace amaxscope

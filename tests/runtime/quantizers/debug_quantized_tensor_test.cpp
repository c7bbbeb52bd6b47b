#include "runtime/quantizers/debug_quantized_tensor.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {
namespace {

constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;
const Shape kShape{1, 2};

/// Records what it is told.
class Recorder final : public QuantizedTensor {
 public:
  explicit Recorder(Usage usage) : usage_(usage) {}
  [[nodiscard]] const Shape& shape() const noexcept override { return kShape; }
  [[nodiscard]] DType format(Direction) const override { return DType::kE4M3; }
  [[nodiscard]] Usage usage() const noexcept override { return usage_; }
  [[nodiscard]] GemmOperand operand(Direction) const override { return {}; }
  [[nodiscard]] Tensor dequantize(DType, Direction) const override { return {}; }
  void update_usage(Usage wanted) override {
    told.push_back(wanted);
    usage_ = wanted;
  }
  std::vector<Usage> told;

 private:
  Usage usage_;
};

std::shared_ptr<Float8Tensor> codes(Usage usage) {
  return quantize_float8(Tensor::of({1.0F, 2.0F}, kShape), DType::kE4M3, 1.0F, usage);
}

std::shared_ptr<HighPrecisionTensor> plain() {
  return std::make_shared<HighPrecisionTensor>(Tensor::of({1.0F, 2.0F}, kShape));
}

TEST(DebugQuantizedTensor, MembersOfDifferentKinds) {
  const DebugQuantizedTensor tensor(kShape, codes({true, false}), plain());
  EXPECT_FALSE(tensor.shared());
  EXPECT_EQ(tensor.format(kRow), DType::kE4M3);
  EXPECT_EQ(tensor.format(kColumn), DType::kF32);
  EXPECT_EQ(tensor.operand(kColumn).data.dtype(), DType::kF32);
  EXPECT_TRUE(tensor.operand(kColumn).transposed);
  EXPECT_EQ(tensor.operand(kRow).data.dtype(), DType::kE4M3);
  EXPECT_EQ(tensor.dequantize(DType::kF32, kColumn).values<float>()[1], 2.0F);
}

TEST(DebugQuantizedTensor, NamesTheFormatsOfItsDirections) {
  EXPECT_EQ(DebugQuantizedTensor(kShape, codes({true, false}), plain()).format_name(),
            "rowwise E4M3, columnwise high precision");
  EXPECT_EQ(DebugQuantizedTensor(kShape, codes({true, false}), nullptr).format_name(), "E4M3");
  EXPECT_EQ(DebugQuantizedTensor(kShape, nullptr, codes({false, true})).format_name(), "E4M3");
  const auto both = codes({true, true});
  EXPECT_EQ(DebugQuantizedTensor(kShape, both, both).format_name(), "E4M3");
  const auto fake = std::make_shared<HighPrecisionTensor>(Tensor::of({1.0F, 2.0F}, kShape), "E5M2");
  EXPECT_EQ(DebugQuantizedTensor(kShape, fake, fake).format_name(), "E5M2, dequantized");
}

TEST(DebugQuantizedTensor, UsageGoesToTheMemberOfThatDirection) {
  auto row = std::make_shared<Recorder>(Usage{true, false});
  auto column = std::make_shared<Recorder>(Usage{false, true});
  DebugQuantizedTensor tensor(kShape, row, column);
  tensor.update_usage({true, true});
  EXPECT_THAT(row->told, testing::ElementsAre(Usage{true, false}));
  EXPECT_THAT(column->told, testing::ElementsAre(Usage{false, true}));

  tensor.update_usage({true, false});
  EXPECT_EQ(column.use_count(), 1) << "a dropped direction frees its member";
  EXPECT_EQ(tensor.usage(), (Usage{true, false}));
  EXPECT_EQ(tensor.get_tensor(true), nullptr);

  const std::size_t told = row->told.size();
  try {
    tensor.update_usage({true, true});
    ADD_FAILURE() << "a freed member came back";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("columnwise"));
  }
  EXPECT_EQ(row->told.size(), told) << "the other member was touched";
}

TEST(DebugQuantizedTensor, ASharedMemberGetsOneCombinedCall) {
  auto member = std::make_shared<Recorder>(Usage{true, true});
  DebugQuantizedTensor tensor(kShape, member, member);
  EXPECT_TRUE(tensor.shared());
  tensor.update_usage({false, true});
  EXPECT_THAT(member->told, testing::ElementsAre(Usage{false, true}));
  EXPECT_EQ(tensor.get_tensor(false), nullptr);
  EXPECT_EQ(tensor.get_tensor(true), member);
  tensor.update_usage({false, false});
  EXPECT_EQ(member.use_count(), 1);
  EXPECT_EQ(tensor.usage(), (Usage{false, false}));
}

// A column-parallel layer with sequence parallelism keeps the rowwise codes for the gather in backward and
// makes the transpose from them only then.
TEST(DebugQuantizedTensor, ADroppedDirectionOfASharedMemberCanBeHadAgain) {
  auto member = codes({true, true});
  DebugQuantizedTensor tensor(kShape, member, member);
  tensor.update_usage({true, false});
  EXPECT_FALSE(member->usage().columnwise);
  EXPECT_THROW(static_cast<void>(tensor.operand(kColumn)), Error);
  tensor.update_usage({false, true});
  EXPECT_EQ(tensor.operand(kColumn).rows(), 2);
  EXPECT_EQ(member->usage(), (Usage{false, true}));
}

TEST(DebugQuantizedTensor, SavingHandsOutEveryMemberOnce) {
  auto shared_member = codes({true, true});
  DebugQuantizedTensor shared(kShape, shared_member, shared_member);
  auto saved = shared.prepare_for_saving();
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(shared_member.use_count(), 2) << "the tensor kept a member";
  EXPECT_EQ(shared.usage(), (Usage{false, false}));
  EXPECT_THROW(static_cast<void>(shared.operand(kRow)), Error);
  EXPECT_THROW(static_cast<void>(shared.prepare_for_saving()), Error);
  EXPECT_THROW(shared.restore_from_saved({}), Error);
  shared.restore_from_saved(std::move(saved));
  EXPECT_TRUE(shared.shared());
  EXPECT_EQ(shared.get_tensor(true), shared_member);

  auto row = codes({true, false});
  auto column = plain();
  DebugQuantizedTensor two(kShape, row, column);
  saved = two.prepare_for_saving();
  ASSERT_EQ(saved.size(), 2U);
  two.restore_from_saved(std::move(saved));
  EXPECT_EQ(two.get_tensor(false), row);
  EXPECT_EQ(two.get_tensor(true), column);

  DebugQuantizedTensor only_column(kShape, nullptr, column);
  saved = only_column.prepare_for_saving();
  ASSERT_EQ(saved.size(), 1U);
  only_column.restore_from_saved(std::move(saved));
  EXPECT_EQ(only_column.get_tensor(false), nullptr);
  EXPECT_EQ(only_column.get_tensor(true), column);

  DebugQuantizedTensor empty(kShape, nullptr, nullptr);
  EXPECT_TRUE(empty.prepare_for_saving().empty());
  empty.restore_from_saved({});
}

TEST(DebugQuantizedTensor, MembersCanBeReplaced) {
  DebugQuantizedTensor tensor(kShape, codes({true, false}), nullptr);
  auto member = plain();
  tensor.set_tensor(true, member);
  EXPECT_EQ(tensor.get_tensor(true), member);
  tensor.set_tensor(false, member);
  EXPECT_TRUE(tensor.shared());
  tensor.set_tensor(true, nullptr);
  EXPECT_EQ(tensor.usage(), (Usage{true, false}));
  EXPECT_THROW(tensor.set_tensor(true, std::make_shared<HighPrecisionTensor>(Tensor(DType::kF32, {2, 2}))),
               Error);
}

}  // namespace
}  // namespace amaxscope

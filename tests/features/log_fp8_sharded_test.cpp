// The current-scaling what-if of a tensor that is spread over tensor-parallel ranks.
#include <gmock/gmock.h>

#include <array>

#include "collectives/loopback_communicator.hpp"
#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using testing::FakeRegistration;
using testing::gemm_tensor;
using testing::inspect;
using testing::row;
using testing::te_feature;
using testing::value_of;

struct Outcome {
  std::optional<double> scale_inv;
  std::uint64_t collectives = 0;
  bool ran = false;
};

/// Two ranks: the first holds `first`, the second [7, 0.28].
std::array<Outcome, 2> on_two_ranks(Layout layout, const Tensor& first) {
  std::array<Outcome, 2> outcomes;
  run_loopback_ranks(2, [&](Communicator& group) {
    const auto feature =
        te_feature("LogFp8TensorStats", "tensors: [activation], stats: [fp8_current_scaling_scale_inv_max]");
    InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
    tensor.layout = layout;
    FakeRegistration registration;
    feature->register_tensor(tensor, registration);
    CollectiveGuard guard(group, {});
    AmaxReducer tp_amax(guard);
    const Tensor second = row({7.0F, 0.28F});
    inspect(*feature, tensor, group.rank() == 0 ? first.view() : second.view(), {.tp_amax = &tp_amax});
    // A recompute goes past the collective on every rank.
    inspect(*feature, tensor, second.view(), {.phase = Phase::kRecompute, .tp_amax = &tp_amax});
    group.barrier({.traffic = Traffic::kTrainer, .what = "end"});
    outcomes[static_cast<std::size_t>(group.rank())] = {
        value_of(registration.values(), "fp8_current_scaling_scale_inv_max"),
        group.counters().calls(Traffic::kDebug), registration.ran()};
  });
  return outcomes;
}

TEST(LogFp8Sharded, TheScaleIsThatOfTheWholeTensor) {
  const Tensor first = row({1.0F, 0.5F});
  for (const Layout layout : {Layout::kShard0, Layout::kShard1}) {
    for (const Outcome& outcome : on_two_ranks(layout, first)) {
      EXPECT_EQ(outcome.scale_inv, 0x1p-6);  // 7 / 448
      EXPECT_GT(outcome.collectives, 0U);
    }
  }
}

TEST(LogFp8Sharded, AnEmptyShardTakesPart) {
  const Tensor empty(DType::kF32, Shape{0, 2});
  const auto outcomes = on_two_ranks(Layout::kShard0, empty);
  EXPECT_TRUE(outcomes[0].ran);
  EXPECT_FALSE(outcomes[0].scale_inv.has_value());
  EXPECT_EQ(outcomes[1].scale_inv, 0x1p-6);
}

TEST(LogFp8Sharded, ReplicatedAndPartialTensorsAreNotReduced) {
  const Tensor first = row({448.0F, 0.5F});
  for (const Layout layout : {Layout::kReplicated, Layout::kPartial}) {
    const auto outcomes = on_two_ranks(layout, first);
    EXPECT_EQ(outcomes[0].scale_inv, 1.0);
    EXPECT_EQ(outcomes[1].scale_inv, 0x1p-6);
    EXPECT_EQ(outcomes[0].collectives, 0U);
  }
}

}  // namespace
}  // namespace amaxscope

#include "megatron/gradients.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/loopback_communicator.hpp"

namespace amaxscope::megatron {
namespace {

Parameter parameter_with(Layout layout, std::initializer_list<float> gradient) {
  Parameter parameter("p", {static_cast<std::int64_t>(gradient.size())}, DType::kF32, layout);
  std::copy(gradient.begin(), gradient.end(), parameter.gradient.values<float>().begin());
  return parameter;
}

// Split: 3, 4 on rank 0 and 12, 0 on rank 1. Replicated: 84, once. sqrt(9 + 16 + 144 + 7056) = 85.
TEST(Gradients, NormCountsReplicasOnce) {
  run_loopback_ranks(2, [](Communicator& tp) {
    Parameter split =
        tp.rank() == 0 ? parameter_with(Layout::kShard1, {3, 4}) : parameter_with(Layout::kShard1, {12, 0});
    Parameter replicated = parameter_with(Layout::kReplicated, {84});
    const std::vector<Parameter*> parameters = {&split, &replicated};
    EXPECT_DOUBLE_EQ(gradient_norm(parameters, &tp), 85.0);
  });
}

TEST(Gradients, ReduceSumsOverTpAndAveragesOverDp) {
  run_loopback_ranks(2, [](Communicator& group) {
    const float own = group.rank() == 0 ? 1.0F : 5.0F;
    Parameter marked = parameter_with(Layout::kReplicated, {own});
    marked.reduce_gradient_over_tp = true;
    Parameter split = parameter_with(Layout::kShard0, {own});
    const std::vector<Parameter*> parameters = {&marked, &split};
    reduce_gradients(parameters, &group, nullptr);
    EXPECT_EQ(marked.gradient.values<float>()[0], 6.0F);
    EXPECT_EQ(split.gradient.values<float>()[0], own);
    reduce_gradients(std::vector<Parameter*>{&split}, nullptr, &group);
    EXPECT_EQ(split.gradient.values<float>()[0], 3.0F);
  });
}

TEST(Gradients, ClipScalesToTheLimitOnly) {
  Parameter p = parameter_with(Layout::kReplicated, {3, 4});
  const std::vector<Parameter*> parameters = {&p};
  clip_gradients(parameters, 5.0, 6.0);
  EXPECT_EQ(p.gradient.values<float>()[0], 3.0F);
  clip_gradients(parameters, 5.0, 2.5);
  EXPECT_EQ(p.gradient.values<float>()[0], 1.5F);
  EXPECT_EQ(p.gradient.values<float>()[1], 2.0F);
  clip_gradients(parameters, NAN, 1.0);
  EXPECT_EQ(p.gradient.values<float>()[1], 2.0F);
}

// FNV-1a of the little-endian bytes of 1.0f, -2.5f and 0.5f, computed apart.
TEST(Gradients, DigestIsFnvOfTheMasterBytes) {
  Parameter a("a", {2}, DType::kF32, Layout::kReplicated);
  a.master.values<float>()[0] = 1.0F;
  a.master.values<float>()[1] = -2.5F;
  Parameter b("b", {1}, DType::kF32, Layout::kReplicated);
  b.master.values<float>()[0] = 0.5F;
  EXPECT_EQ(weights_digest(std::vector<Parameter*>{&a, &b}), 0x00f39869ef34f295U);
}

}  // namespace
}  // namespace amaxscope::megatron

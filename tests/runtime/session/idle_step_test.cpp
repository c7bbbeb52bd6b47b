// A step at which nothing is due allocates nothing and calls nobody, with a config that watches everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "features/presets.hpp"
#include "tests/runtime/session/session_fixture.hpp"
#include "tests/support/allocations.hpp"

namespace amaxscope {
namespace {

using testing::allocations_of_this_thread;
using testing::feed;
using testing::run_sessions;
using testing::SessionRank;

// All at iteration 0 and then not before 100.
constexpr const char* kEverything = R"(
all:
  enabled: True
  layers: {layer_types: [all]}
  observe: .
  transformer_engine:
    InvariantGuard: {enabled: True, tensors: [activation, weight, gradient], freq: 100}
    NonFiniteGuard: {enabled: True, tensors: [activation, weight, gradient], freq: 100}
    LogTensorStats: {enabled: True, tensors: [activation, weight, gradient], stats: [mean, std, cur_amax], freq: 100}
    LogFp8TensorStats: {enabled: True, tensors: [activation, weight], stats: [sqnr, mxfp8_sqnr], freq: 100}
    CompareGemm: {enabled: True, gemms: [fprop], freq: 100}
    Trends: {enabled: True, tensors: [activation], freq: 100}
)";

struct Cost {
  std::uint64_t allocations = 0;
  std::uint64_t calls = 0;
  int active = 0;

  bool operator==(const Cost&) const = default;
  friend void PrintTo(const Cost& cost, std::ostream* out) {
    *out << cost.allocations << " allocations, " << cost.calls << " calls, " << cost.active
         << " active layers";
  }
};

/// One iteration of three micro-batches over all layers.
Cost iteration_of(SessionRank& self, const std::vector<LayerHandle>& layers, const TensorView& x) {
  const std::uint64_t before = allocations_of_this_thread();
  const std::uint64_t calls = self.debug_calls();
  int active = 0;
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    for (const LayerHandle& layer : layers) {
      active += layer.active() ? 1 : 0;
      for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient})
        feed(layer, tensor, x, {.microbatch = microbatch});
    }
  }
  self.session.step();
  return {allocations_of_this_thread() - before, self.debug_calls() - calls, active};
}

void expect_free_when_idle(const std::string& yaml) {
  const std::filesystem::path logs = std::filesystem::temp_directory_path() / "amaxscope_idle_step";
  std::filesystem::remove_all(logs);
  run_sessions({.ranks = 2,
                .sizes = {.tp = 2},
                .yaml = yaml,
                .adjust = [&](SessionOptions& options, int) { options.log_dir = logs; }},
               [](SessionRank& self) {
                 std::vector<LayerHandle> layers;
                 layers.reserve(20);
                 for (int i = 0; i < 20; ++i) {
                   layers.push_back(self.session.layer(self.layer("decoder.layers." + std::to_string(i) +
                                                                  ".mlp.linear_fc1_with_a_long_name")));
                 }
                 const Tensor x = Tensor::of<float>(std::vector<float>(64, 1.0F), {8, 8});
                 const Cost first = iteration_of(self, layers, x.view());
                 EXPECT_GT(first.allocations, 0U) << "due, or nothing is counted";
                 EXPECT_GT(first.calls, 0U);
                 EXPECT_EQ(first.active, 60);
                 // After an iteration that was due each layer learns once when it is next.
                 const Cost second = iteration_of(self, layers, x.view());
                 EXPECT_EQ(second, Cost{.active = 20});
                 for (int i = 2; i < 10; ++i) {
                   EXPECT_EQ(iteration_of(self, layers, x.view()), Cost()) << "iteration " << i;
                 }
               });
  std::filesystem::remove_all(logs);
}

TEST(IdleStep, AllocatesNothingUnderAConfigOfEverything) { expect_free_when_idle(kEverything); }

TEST(IdleStep, AllocatesNothingUnderThePresetThatIsAlwaysOn) {
  expect_free_when_idle(std::string(find_preset("watch")->yaml));
}

}  // namespace
}  // namespace amaxscope

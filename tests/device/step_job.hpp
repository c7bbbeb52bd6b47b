// What tests of whole training steps on the imitated device share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "features/builtin.hpp"
#include "kernels/cuda/cublaslt_gemm.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/collectives/nccl_test.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/device/small_step.hpp"
#include "tests/fake/fake_cublaslt.hpp"

namespace amaxscope::testing {

/// A section of features that alter what fc2 computes.
constexpr std::string_view kActs = R"(
acts:
  enabled: True
  layers: {layer_name_regex_pattern: fc2}
  transformer_engine:
    DisableQuantizationGEMM:
      enabled: True
      gemms: [wgrad]
    FakeQuant:
      enabled: True
      gemms: [dgrad]
      tensors: [gradient, weight]
      quant_format: FP8E4M3
)";

/// Nothing of cuBLASLt is left either, and nothing was copied through pageable memory.
class StepJob : public NcclTest {
 protected:
  void TearDown() override {
    NcclTest::TearDown();
    EXPECT_EQ(fake::pageable_copies(), 0);
    EXPECT_EQ(fake::live_cublas_objects(), 0U);
  }
  static CudaBackendOptions options() { return {.device = 0, .gemm = make_cublaslt_gemm(0)}; }
  /// All ranks are one tensor-parallel group. Null for an empty config.
  static std::unique_ptr<DebugSession> make_session(Communicator& nccl, std::string_view config,
                                                    std::vector<StatRecord>& records) {
    if (config.empty()) return nullptr;
    SessionOptions options;
    options.config_text = std::string(config);
    options.deadline = std::chrono::seconds(60);
    options.extra_sinks.push_back(
        make_callback_sink([&records](const StatRecord& record) { records.push_back(record); },
                           [](std::int64_t, const Scalars&) {}, [](const Finding&) {}));
    SessionGroups groups;
    groups.world = groups.tp = groups.stage = &nccl;
    return std::make_unique<DebugSession>(builtin_features(), groups, std::move(options));
  }
};

/// y, dx, dw1, dw2 on the host.
inline std::vector<Tensor> on_host(const SmallModel::Gradients& gradients) {
  std::vector<Tensor> results;
  for (const Tensor* tensor : {&gradients.y, &gradients.dx, &gradients.dw1, &gradients.dw2})
    results.push_back(to_host(tensor->view()));
  return results;
}

inline void expect_same_results(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                                std::string_view what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(same(actual[i], expected[i])) << what << ", result " << i;
  }
}

/// Values within what fp64 sums in another order may differ by; all else equal.
inline void expect_same_records(const std::vector<StatRecord>& actual,
                                const std::vector<StatRecord>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const StatRecord& got = actual[i];
    const StatRecord& wanted = expected[i];
    ASSERT_EQ(got.iteration, wanted.iteration);
    ASSERT_EQ(got.layer, wanted.layer);
    ASSERT_EQ(got.tensor, wanted.tensor);
    EXPECT_EQ(got.format, wanted.format);
    ASSERT_EQ(got.stats.size(), wanted.stats.size()) << wanted.layer << ' ' << wanted.tensor;
    for (std::size_t k = 0; k < got.stats.size(); ++k) {
      EXPECT_EQ(got.stats[k].name, wanted.stats[k].name);
      EXPECT_EQ(got.stats[k].flags, wanted.stats[k].flags);
      EXPECT_NEAR(got.stats[k].value, wanted.stats[k].value, 1e-9 * std::abs(wanted.stats[k].value))
          << "iteration " << wanted.iteration << ", " << wanted.layer << ' ' << wanted.tensor << ' '
          << wanted.stats[k].name;
    }
  }
}

}  // namespace amaxscope::testing

// A session that looks at one tensor on a device, in steps that run as they are and in replays of a captured
// one.
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "features/builtin.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/device/captured_graph.hpp"

namespace amaxscope::testing {

/// A session that logs the amax of one observed tensor, which is filled with a number.
class Observed {
 public:
  /// x: f32 [4, 8] on a device.
  Observed(Tensor x, int freq) : x_(std::move(x)) {
    SessionOptions options;
    options.config_text = config(freq);
    options.replaceable_config = true;
    options.poll_every = 1;
    options.first_iteration = 1;
    options.extra_sinks.push_back(make_callback_sink(
        [this](const StatRecord& record) {
          records_.emplace_back(record.iteration, record.stats.at(0).value);
        },
        [](std::int64_t, const Scalars&) {}, [](const Finding&) {}));
    session_.emplace(registry_, SessionGroups{}, std::move(options));
  }
  static std::string config(int freq) {
    return fmt::format(R"(
looks:
  enabled: True
  layers: {{layer_name_regex_pattern: "none"}}
  observe: "x"
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [cur_amax]
      freq: {}
)",
                       freq);
  }
  void fill(float value) {
    const std::vector<float> values(32, value);
    overwrite(x_, Tensor::of<float>(std::span<const float>(values), {4, 8}).view());
  }
  void observe() { session_->observe("x", "residual", x_.view(), Layout::kReplicated); }
  CapturedGraph capture() {
    session_->begin_capture(x_.view().stream());
    CapturedGraph graph(x_.view().stream(), [&] { observe(); });
    session_->end_capture();
    return graph;
  }
  DebugSession& session() { return *session_; }
  [[nodiscard]] const std::vector<std::pair<std::int64_t, double>>& records() const { return records_; }

 private:
  Tensor x_;
  std::vector<std::pair<std::int64_t, double>> records_;
  const FeatureRegistry registry_ = builtin_features();
  std::optional<DebugSession> session_;
};

/// Iterations 1 to 10, most of them replayed, looked at when even: with the number of the iteration in the
/// tensor, and a larger one when nobody is to look.
inline void expect_each_replay_logs_its_own(Tensor x) {
  Observed run(std::move(x), 2);
  const auto iteration = [&](int number, const CapturedGraph* graph) {
    run.fill(static_cast<float>(number % 2 == 0 ? number : 100 + number));
    if (graph == nullptr) {
      run.observe();
    } else {
      run.session().before_replay();
      graph->launch();
    }
    run.session().step();
  };
  iteration(1, nullptr);
  {
    const CapturedGraph graph = run.capture();
    for (int i = 2; i <= 6; ++i) iteration(i, &graph);
    iteration(7, nullptr);
    iteration(8, nullptr);  // as it is, in between
    iteration(9, &graph);
    iteration(10, &graph);
  }
  using Record = std::pair<std::int64_t, double>;
  EXPECT_THAT(run.records(),
              ::testing::ElementsAre(Record(2, 2), Record(4, 4), Record(6, 6), Record(8, 8), Record(10, 10)));
}

}  // namespace amaxscope::testing

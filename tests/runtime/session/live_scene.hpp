// One rank of a test about what ranks decide together while they run: its groups, its session, what its sinks
// got. The same scenes run on threads and under mpirun.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "features/builtin.hpp"
#include "runtime/session.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::testing {

/// Finds what it is told to: a tensor that begins with 99. Keys: tensors, action, schedule.
class Alarm final : public Feature {
 public:
  explicit Alarm(FeatureConfig config)
      : Feature(std::move(config)),
        action_(parse_event_action(this->config().outer.get_string("action", "record")).value()) {}
  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { services_ = services; }
  [[nodiscard]] EventAction trigger() const override { return action_; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override {
    const FeatureParams* params = config().params(std::nullopt, tensor.kind);
    return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
  }
  void inspect_tensor(const InspectContext& context) override {
    last_ = {context.iteration, context.tensor.layer, context.tensor.name, context.moment.phase, 0, {}};
    if (context.x.numel() == 0 || context.x.values<float>()[0] != 99.0F) return;
    services_.report({.check = "alarm",
                      .iteration = context.iteration,
                      .layer = context.tensor.layer,
                      .tensor = context.tensor.name,
                      .ranks = {},
                      .what = "begins with 99"});
  }
  void recent(const std::function<void(RecentTensor)>& take) const override { take(last_); }

  static FeatureEntry entry() {
    FeatureSchema schema;
    schema.name = "Alarm";
    schema.takes_tensors = true;
    schema.keys = {{.name = "action", .type = KeyType::kString, .default_text = "record", .doc = ""}};
    return {.schema = std::move(schema),
            .make = [](FeatureConfig config) { return std::make_unique<Alarm>(std::move(config)); }};
  }

 private:
  EventAction action_;
  FeatureServices services_;
  RecentTensor last_;
};

inline FeatureRegistry live_features() {
  FeatureRegistry registry = builtin_features();
  registry.add(Alarm::entry());
  return registry;
}

class LiveRank {
 public:
  LiveRank(Communicator& world, const ParallelSizes& sizes, SessionOptions options)
      : world_(world), groups_(world, sizes) {
    options.deadline = std::chrono::seconds(20);
    options.extra_sinks.push_back(make_callback_sink(
        [this](const StatRecord& record) { records.push_back(record); }, {},
        [this](const Finding& finding) { findings.push_back(finding); },
        [this](std::int64_t iteration, const Event& event) { events.emplace_back(iteration, event); }));
    session_ = std::make_unique<DebugSession>(registry_, SessionGroups::from(groups_), std::move(options));
  }

  [[nodiscard]] DebugSession& session() { return *session_; }
  [[nodiscard]] Communicator& world() { return world_; }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] const ProcessGroups& groups() const { return groups_; }
  [[nodiscard]] int stage() const { return groups_.grid().coordinate(world_.rank(), "pp"); }
  [[nodiscard]] std::uint64_t debug_calls() const { return world_.counters().calls(Traffic::kDebug); }

  LayerHandle add_layer(const std::string& name) {
    LayerDescription description;
    description.name = name;
    description.parallel = ParallelMode::kColumn;
    description.tp_group = &groups_.tp();
    return session_->layer(description);
  }
  /// What a layer does with an activation in an iteration.
  static void feed(const LayerHandle& layer, float first, const TensorMoment& moment = {}) {
    if (!layer.active()) return;
    DebugQuantizer* quantizer = layer.quantizer(TensorKind::kActivation);
    if (quantizer == nullptr) return;
    const Tensor x = Tensor::of<float>({first, 1, 2, 3}, {2, 2});
    static_cast<void>(quantizer->quantize(x, {true, true}, moment));
  }
  /// Iterations up to, not including, `end`, in each of which every layer gets an activation.
  void run_to(std::int64_t end, const std::vector<LayerHandle>& layers) {
    while (session_->iteration() < end) {
      for (const LayerHandle& layer : layers) feed(layer, 1);
      session_->step();
    }
  }

  std::vector<StatRecord> records;
  std::vector<Finding> findings;
  std::vector<std::pair<std::int64_t, Event>> events;

 private:
  Communicator& world_;
  ProcessGroups groups_;
  FeatureRegistry registry_ = live_features();
  std::unique_ptr<DebugSession> session_;
};

inline SessionOptions with_config(const std::string& yaml) {
  SessionOptions options;
  options.config_text = yaml;
  return options;
}

/// A section with one feature on the activations of all layers.
inline std::string section(const std::string& name, const std::string& feature, const std::string& keys) {
  return name + ": {enabled: true, layers: {layer_types: [all]}, transformer_engine: {" + feature +
         ": {enabled: true, tensors: [activation], " + keys + "}}}\n";
}

}  // namespace amaxscope::testing

// A debug feature from outside the library, and a program that uses it: LargeValues counts the elements of a
// tensor whose magnitude is above a threshold, and says so when there are any. usage: own_feature
#include <amaxscope/features/builtin.hpp>
#include <amaxscope/runtime/session.hpp>
#include <cmath>
#include <cstdio>

namespace {

using namespace amaxscope;

class LargeValues final : public Feature {
 public:
  using Feature::Feature;

  /// It looks and changes nothing: when something fails the session stops observing and the training goes on.
  [[nodiscard]] bool alters_numerics() const override { return false; }
  void attach(const FeatureServices& services) override { warn_ = services.warn; }

  /// Depends on the config and the iteration alone, so that all ranks decide alike.
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override {
    const FeatureParams* const params = config().params(std::nullopt, tensor.kind);
    return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
  }

  void inspect_tensor(const InspectContext& context) override {
    const double threshold = config().params(std::nullopt, context.tensor.kind)->get_number("threshold", 0.0);
    int large = 0;
    for (const float value : context.x.values<float>()) large += std::abs(value) > threshold ? 1 : 0;
    if (large == 0) return;
    warn_(fmt::format("iteration {}: {} of {} has {} values above {}", context.iteration, context.tensor.name,
                      context.tensor.layer, large, threshold));
  }

 private:
  std::function<void(const std::string&)> warn_;
};

FeatureEntry large_values_entry() {
  return {.schema = {.name = "LargeValues",
                     .doc = "Says where values are above a threshold.",
                     .takes_tensors = true,
                     .keys = {{.name = "threshold",
                               .type = KeyType::kNumber,
                               .required = true,
                               .doc = "A magnitude."}}},
          .make = [](FeatureConfig config) { return std::make_unique<LargeValues>(std::move(config)); }};
}

constexpr const char* kConfig = R"(
mlp:
  enabled: True
  layers:
    layer_types: [mlp]
  transformer_engine:
    LargeValues:
      enabled: True
      tensors: [activation]
      threshold: 10
      freq: 2
)";

}  // namespace

int main() {
  FeatureRegistry registry = builtin_features();
  registry.add(large_values_entry());
  SessionOptions options;
  options.config_text = kConfig;
  DebugSession session(registry, {}, options);
  LayerDescription description;
  description.name = "layers.1.mlp.fc1";
  const LayerHandle layer = session.layer(description);
  for (int step = 0; step < 3; ++step) {
    const Tensor x = Tensor::of<float>({1.0F, -20.0F, static_cast<float>(10 * step), 4.0F}, {2, 2});
    if (layer.active()) {
      if (DebugQuantizer* const quantizer = layer.quantizer(TensorKind::kActivation)) {
        static_cast<void>(quantizer->quantize(x, {.rowwise = true, .columnwise = true}, {}));
      }
    }
    session.step();
  }
  session.close();
  std::puts("done");
}

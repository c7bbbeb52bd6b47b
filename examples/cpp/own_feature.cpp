// A program with a debug feature of its own. usage: own_feature
#include <amaxscope/features/builtin.hpp>
#include <amaxscope/runtime/session.hpp>
#include <cstdio>

#include "large_values.hpp"

namespace {

using namespace amaxscope;  // NOLINT(google-build-using-namespace): a program of one file

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
  registry.add(example::large_values_entry());
  SessionOptions options;
  options.config_text = kConfig;
  const SessionGroups groups;  // none: one rank
  DebugSession session(registry, groups, options);
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

// LargeValues for `amaxscope train --plugin FILE`, and check, explain and replay.
#include <amaxscope/runtime/feature/plugin.hpp>

#include "large_values.hpp"

extern "C" const char* amaxscope_plugin_version() { return amaxscope::kVersion; }

extern "C" void amaxscope_plugin(amaxscope::FeatureRegistry& registry) {
  registry.add(example::large_values_entry());
}

// Features from shared objects.
#pragma once

#include <string>
#include <vector>

#include "runtime/feature/registry.hpp"

namespace amaxscope::launch {

/// Adds what these files offer, in their order, and says on standard error what was loaded from where when
/// `announces`. Local; may block on the disk. Throws Error(kInput) naming the file: it cannot be loaded, is
/// no plugin, or is of another version; what the plugin throws, such as Error(kUsage) for a name that is
/// taken, with the file's name.
void load_plugins(const std::vector<std::string>& files, bool announces, FeatureRegistry& registry);

/// The text of --plugin, the same for every command that has it.
inline constexpr const char* kPluginHelp =
    "shared object with features of your own; may be repeated. It runs with your rights: load what you trust";

}  // namespace amaxscope::launch

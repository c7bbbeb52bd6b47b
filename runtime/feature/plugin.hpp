// Features in a shared object that a program loads on request (--plugin FILE). It exports two C functions:
//
//   extern "C" const char* amaxscope_plugin_version() { return amaxscope::kVersion; }
//   extern "C" void amaxscope_plugin(amaxscope::FeatureRegistry& registry) { registry.add(...); }
//
// Its classes and those of the program must be the same, so the version must be the program's, and the
// compiler and its flags compatible. It runs with all the rights of the program and is never unloaded.
#pragma once

#include "core/version.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

using PluginVersion = const char*();
using PluginFeatures = void(FeatureRegistry&);
inline constexpr const char* kPluginVersionSymbol = "amaxscope_plugin_version";
inline constexpr const char* kPluginFeaturesSymbol = "amaxscope_plugin";

}  // namespace amaxscope

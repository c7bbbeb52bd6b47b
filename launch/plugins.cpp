#include "launch/plugins.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "core/error.hpp"
#include "runtime/feature/plugin.hpp"

namespace amaxscope::launch {

namespace {

/// Never closed: features live in it.
void* open(const std::filesystem::path& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const reason = handle == nullptr ? dlerror() : nullptr;
  AMAXSCOPE_CHECK(handle != nullptr, ErrorCode::kInput, "--plugin {}: cannot be loaded: {}", path.string(),
                  reason == nullptr ? "the loader gives no reason" : reason);
  return handle;
}

template <class Function>
Function& symbol(void* handle, const char* name, const std::filesystem::path& path) {
  void* const address = dlsym(handle, name);
  AMAXSCOPE_CHECK(
      address != nullptr, ErrorCode::kInput,
      "--plugin {}: is no plugin of amaxscope: it has no function {} (runtime/feature/plugin.hpp says what a "
      "plugin exports)",
      path.string(), name);
  return *reinterpret_cast<Function*>(address);
}

void load(const std::string& file, bool announces, FeatureRegistry& registry) {
  std::error_code failure;
  // With a slash, so that the loader takes this file and looks nowhere else.
  const std::filesystem::path path = std::filesystem::absolute(file, failure);
  AMAXSCOPE_CHECK(!failure && std::filesystem::is_regular_file(path, failure), ErrorCode::kInput,
                  "--plugin {}: no such file", file);
  void* const handle = open(path);
  const std::string version = symbol<PluginVersion>(handle, kPluginVersionSymbol, path)();
  AMAXSCOPE_CHECK(
      version == kVersion, ErrorCode::kInput,
      "--plugin {}: was made with version {}, this is {}; build it again with the headers of this version",
      path.string(), version, kVersion);
  const std::size_t known = registry.entries().size();
  try {
    symbol<PluginFeatures>(handle, kPluginFeaturesSymbol, path)(registry);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--plugin {}: {}", path.string(), error.what()));
  }
  std::string names;
  for (std::size_t i = known; i < registry.entries().size(); ++i) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", registry.entries()[i].schema.name);
  }
  AMAXSCOPE_CHECK(!names.empty(), ErrorCode::kInput, "--plugin {}: adds no feature", path.string());
  if (announces) std::fputs(fmt::format("amaxscope: plugin {}: {}\n", path.string(), names).c_str(), stderr);
}

}  // namespace

void load_plugins(const std::vector<std::string>& files, bool announces, FeatureRegistry& registry) {
  for (const std::string& file : files) load(file, announces, registry);
}

}  // namespace amaxscope::launch

#include "launch/compute_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/version.hpp"

namespace amaxscope::launch {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = "libamaxscope_train_cuda.so";

/// Never closed: drivers keep threads and handlers.
const ComputeModule& load(const fs::path& path) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const reason = handle == nullptr ? dlerror() : nullptr;
  AMAXSCOPE_CHECK(
      handle != nullptr, ErrorCode::kUsage,
      "--device cuda: {} cannot be loaded: {}; it needs the CUDA runtime, cuBLASLt and NCCL that it was "
      "built with (LD_LIBRARY_PATH says where they are), or train with --device cpu",
      path.string(), reason == nullptr ? "the loader gives no reason" : reason);
  const auto* const module = static_cast<const ComputeModule*>(dlsym(handle, kComputeModuleSymbol));
  AMAXSCOPE_CHECK(module != nullptr, ErrorCode::kUsage, "--device cuda: {} has no {}; it is another library",
                  path.string(), kComputeModuleSymbol);
  AMAXSCOPE_CHECK(std::string_view(module->version) == kVersion, ErrorCode::kUsage,
                  "--device cuda: {} is of version {}, this program of {}; build both together",
                  path.string(), module->version, kVersion);
  return *module;
}

}  // namespace

std::vector<fs::path> compute_module_places() {
  std::error_code unknown;
  const fs::path folder = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  return {folder / kFile, folder.parent_path() / "lib" / "amaxscope" / kFile};
}

const ComputeModule& load_compute_module() {
  std::string looked;
  for (const fs::path& place : compute_module_places()) {
    std::error_code ignored;
    if (fs::exists(place, ignored)) return load(place);
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", place.string());
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format(
          "--device cuda: this program was built without CUDA: there is no {} (looked for {}); build it "
          "where cmake finds nvcc, cuBLASLt and NCCL (docs/cuda.md), or train with --device cpu",
          kFile, looked));
}

}  // namespace amaxscope::launch

#include "launch/machine.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>

namespace amaxscope::launch {

namespace {

class SharedLibrary {
 public:
  explicit SharedLibrary(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  [[nodiscard]] bool loaded() const noexcept { return handle_ != nullptr; }
  template <class Function>
  [[nodiscard]] Function* function(const char* name) const noexcept {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;  // never unloaded: drivers keep threads and handlers
};

}  // namespace

std::string simd_level() {
  std::vector<std::string> levels;
#if defined(__x86_64__)
  // __builtin_cpu_supports wants literals.
  if (__builtin_cpu_supports("sse4.2")) levels.emplace_back("SSE4.2");
  if (__builtin_cpu_supports("avx2")) levels.emplace_back("AVX2");
  if (__builtin_cpu_supports("fma")) levels.emplace_back("FMA");
  if (__builtin_cpu_supports("avx512f")) levels.emplace_back("AVX-512F");
  if (__builtin_cpu_supports("avx512bw")) levels.emplace_back("AVX-512BW");
  if (__builtin_cpu_supports("avx512vbmi")) levels.emplace_back("AVX-512VBMI");
#elif defined(__aarch64__)
  levels.emplace_back("NEON");
#endif
  return levels.empty() ? "none known" : fmt::format("{}", fmt::join(levels, ", "));
}

std::string blas_description() {
  std::string config = openblas_get_config();
  config.erase(config.find_last_not_of(' ') + 1);
  return fmt::format("{}; core {}, {} threads by default", config, openblas_get_corename(),
                     openblas_get_num_threads());
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return CPU_COUNT(&set);
}

std::optional<SharedMemory> shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return std::nullopt;
  return SharedMemory{static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize,
                      static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
}

DriverProbe cuda_driver() {
  const SharedLibrary library("libcuda.so.1");
  if (!library.loaded()) return {false, 0, "no libcuda.so.1 (NVIDIA driver)"};
  const auto init = library.function<int(unsigned)>("cuInit");
  const auto version = library.function<int(int*)>("cuDriverGetVersion");
  const auto count = library.function<int(int*)>("cuDeviceGetCount");
  if (init == nullptr || version == nullptr || count == nullptr)
    return {false, 0, "libcuda.so.1 lacks functions"};
  if (const int status = init(0); status != 0)
    return {false, 0, fmt::format("driver there, cuInit says {}", status)};
  int number = 0;
  int devices = 0;
  if (version(&number) != 0 || count(&devices) != 0) return {false, 0, "driver does not answer"};
  return {true, devices, fmt::format("CUDA {}.{}", number / 1000, number % 1000 / 10)};
}

DriverProbe nccl_library() {
  const SharedLibrary library("libnccl.so.2");
  if (!library.loaded()) return {false, 0, "no libnccl.so.2"};
  const auto version = library.function<int(int*)>("ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return {false, 0, "libnccl.so.2 does not answer"};
  return {true, 0, fmt::format("NCCL {}.{}.{}", number / 10000, number % 10000 / 100, number % 100)};
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::vector<std::string> environment_with(const std::vector<std::string>& prefixes) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (std::ranges::any_of(prefixes,
                            [&](const std::string& prefix) { return variable.starts_with(prefix); })) {
      variables.emplace_back(variable);
    }
  }
  std::ranges::sort(variables);
  return variables;
}

}  // namespace amaxscope::launch

#include "launch/machine.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

/// As nvidia-smi writes it.
std::string uuid_text(const std::array<unsigned char, 16>& bytes) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

std::optional<VisibleDevice> visible_device(const SharedLibrary& driver, int ordinal) {
  using UuidFunction = int(std::array<unsigned char, 16>*, int);
  const auto get = driver.function<int(int*, int)>("cuDeviceGet");
  const auto name_of = driver.function<int(char*, int, int)>("cuDeviceGetName");
  // The second version tells the parts of a divided device apart.
  auto uuid_of = driver.function<UuidFunction>("cuDeviceGetUuid_v2");
  if (uuid_of == nullptr) uuid_of = driver.function<UuidFunction>("cuDeviceGetUuid");
  if (get == nullptr || name_of == nullptr || uuid_of == nullptr) return std::nullopt;
  int device = 0;
  std::array<char, 128> name{};
  std::array<unsigned char, 16> uuid{};
  if (get(&device, ordinal) != 0 || name_of(name.data(), static_cast<int>(name.size()) - 1, device) != 0 ||
      uuid_of(&uuid, device) != 0) {
    return std::nullopt;
  }
  return VisibleDevice{uuid_text(uuid), name.data()};
}

/// "unlimited", or the soft limit in words.
std::string soft_limit(int resource, bool bytes) {
  struct rlimit limit {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  if (!bytes) return fmt::format("{}", limit.rlim_cur);
  constexpr rlim_t kMebibyte = 1U << 20U;
  return limit.rlim_cur >= kMebibyte ? fmt::format("{} MiB", limit.rlim_cur / kMebibyte)
                                     : fmt::format("{} KiB", limit.rlim_cur / 1024);
}

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

std::string blas_build() {
  std::string config = openblas_get_config();
  config.erase(config.find_last_not_of(' ') + 1);
  return fmt::format("{}; core {}", config, openblas_get_corename());
}

int blas_threads() { return openblas_get_num_threads(); }

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return CPU_COUNT(&set);
}

std::string core_list() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "unknown";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    if (!text.empty()) text += ", ";
    text += last > core ? fmt::format("{}-{}", core, last) : fmt::format("{}", core);
    core = last;
  }
  return text;
}

std::map<std::string, std::string> resource_limits() {
  return {{"locked memory", soft_limit(RLIMIT_MEMLOCK, true)},
          {"open files", soft_limit(RLIMIT_NOFILE, false)}};
}

std::optional<SharedMemory> shared_memory() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return std::nullopt;
  return SharedMemory{static_cast<std::uint64_t>(info.f_blocks) * info.f_frsize,
                      static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize};
}

DriverProbe cuda_driver() {
  const SharedLibrary library("libcuda.so.1");
  if (!library.loaded()) return {{false, "no libcuda.so.1 (NVIDIA driver)"}, {}};
  const auto init = library.function<int(unsigned)>("cuInit");
  const auto version = library.function<int(int*)>("cuDriverGetVersion");
  const auto count = library.function<int(int*)>("cuDeviceGetCount");
  if (init == nullptr || version == nullptr || count == nullptr)
    return {{false, "libcuda.so.1 lacks functions"}, {}};
  if (const int status = init(0); status != 0)
    return {{false, fmt::format("driver there, cuInit says {}", status)}, {}};
  int number = 0;
  int devices = 0;
  if (version(&number) != 0 || count(&devices) != 0) return {{false, "driver does not answer"}, {}};
  DriverProbe probe{{true, fmt::format("CUDA {}.{}", number / 1000, number % 1000 / 10)}, {}};
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    const auto device = visible_device(library, ordinal);
    if (!device) return {{false, fmt::format("driver does not tell what device {} is", ordinal)}, {}};
    probe.devices.push_back(*device);
  }
  return probe;
}

LibraryProbe nccl_library() {
  const SharedLibrary library("libnccl.so.2");
  if (!library.loaded()) return {false, "no libnccl.so.2"};
  const auto version = library.function<int(int*)>("ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return {false, "libnccl.so.2 does not answer"};
  return {true, fmt::format("NCCL {}.{}.{}", number / 10000, number % 10000 / 100, number % 100)};
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

// Every environment variable the library reads, in one place. Read once by whoever starts a session or a
// program; nothing else calls getenv, so that tests can build the struct directly.
#pragma once

#include <optional>
#include <string>

namespace amaxscope {

struct Environment {
  /// AMAXSCOPE: "off" (also 0, false, no) turns every session into nothing. Anything else, or unset: on.
  bool enabled = true;
  /// AMAXSCOPE_THREADS: how many threads kernels of this rank may use; unset: the cores of the rank's
  /// binding.
  std::optional<int> threads;
  /// AMAXSCOPE_LOG_LEVEL: trace, debug, info (default), warn, error.
  std::string log_level = "info";

  /// Throws Error(kUsage) naming the variable and what is allowed.
  static Environment from_process();
};

}  // namespace amaxscope

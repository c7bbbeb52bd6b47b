// Lets a reader of bytes that may be anybody's run where it can do no harm: in a process of its own, with
// little memory and time.
#pragma once

#include <functional>
#include <string>

namespace amaxscope::test {

struct Limits {
  int seconds = 5;  ///< of a CPU; a process that waits is ended after three times as many
  std::size_t mebibytes =
      512;  ///< beyond what the test itself has mapped; not under sanitizers, which map much
};

struct Limited {
  /// What the reader gave back, "refused: ..." for an Error of input, config, tensor or i/o, "error: ..." for
  /// anything else that it threw, "killed by signal N".
  std::string said;
  double cpu_seconds = 0;
  std::size_t peak_mebibytes = 0;  ///< resident, of which some belongs to the test
};

/// Calls the reader in a child process and waits for its end.
Limited limited(const std::function<std::string()>& reader, const Limits& limits = {});

}  // namespace amaxscope::test

// A trace of the calls that this thread makes to the CUDA runtime and driver, by CUPTI: those of libraries
// (NCCL, cuBLASLt) included.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace amaxscope::testing {

/// One at a time in a process. For the thread that made it.
class ApiTrace {
 public:
  /// Throws Error(kInternal) with what CUPTI says.
  ApiTrace();
  ApiTrace(const ApiTrace&) = delete;
  ApiTrace& operator=(const ApiTrace&) = delete;
  ~ApiTrace();

  /// Forgets what was called so far.
  void start();
  /// Names of what was called since, in order: a call of the runtime, then those that it makes to the driver.
  [[nodiscard]] const std::vector<std::string>& calls() const;
  [[nodiscard]] int waits() const;  ///< of calls(), those that may_wait()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace amaxscope::testing

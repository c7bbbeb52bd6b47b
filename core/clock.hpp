// Time as the runtime sees it, so that tests can stop it.
#pragma once

#include <chrono>

namespace amaxscope {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Wall time, for log lines only.
  [[nodiscard]] virtual std::chrono::system_clock::time_point now() const {
    return std::chrono::system_clock::now();
  }
  /// Monotonic time, for deadlines.
  [[nodiscard]] virtual std::chrono::steady_clock::time_point steady_now() const {
    return std::chrono::steady_clock::now();
  }
};

}  // namespace amaxscope

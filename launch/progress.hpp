// How a training tells a person that it is alive: a bar on a terminal, a line now and then otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace amaxscope::launch {

class Progress {
 public:
  /// At most about twelve lines to `lines`, or a bar on stderr when that is a terminal: by itself, or, as the
  /// launcher's pipes hide it from a rank, because AMAXSCOPE_TERMINAL=1 says so (launch/mpirun_local sets
  /// it).
  Progress(std::FILE* lines, std::int64_t steps);
  /// A step is done, counted from 0.
  void step_done(std::int64_t step, double loss, double gradient_norm);

 private:
  bool bar_;
  std::FILE* stream_;
  std::int64_t steps_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace amaxscope::launch

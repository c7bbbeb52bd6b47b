// Kernels of the emulator on the streams of the imitated CUDA runtime.
#pragma once

#include <exception>
#include <utility>

#include "tests/emulator/emulator.hpp"
#include "tests/fake/fake_gpu.hpp"

namespace amaxscope::testing {

/// Kernels of the emulator go into the queues of the imitated streams; what they may not do is a violation.
inline void connect_emulator() {
  emulator::settings().workers = 1;
  emulator::settings().enqueue = [](void* stream, std::function<void()> work) {
    return static_cast<int>(fake::launch(static_cast<cudaStream_t>(stream), [work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& error) {
        fake::add_violation(error.what());
      }
    }));
  };
}

}  // namespace amaxscope::testing

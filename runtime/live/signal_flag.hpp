// Whether a signal has arrived. The handler only counts; whoever asks finds out later.
// Thread safety: seen() may be called from any thread.
#pragma once

#include <csignal>
#include <cstdint>

namespace amaxscope {

/// Handles SIGUSR1 while any object of this class lives; what was there before is put back with the last.
class SignalFlag {
 public:
  /// Throws Error(kUsage) when the system refuses.
  SignalFlag();
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  /// Whether the signal has arrived since the object was made or taken() was called.
  [[nodiscard]] bool seen() const noexcept;
  void taken() noexcept;

 private:
  std::uint32_t known_;
};

}  // namespace amaxscope

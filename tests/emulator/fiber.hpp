// A stack of its own and a way to switch to it and back. Tells the address and the thread sanitizer.
#pragma once

#include <cstddef>

namespace amaxscope::emulator {

/// One stack, reused for fiber after fiber. A fiber runs entry(argument) until that calls leave() (to be
/// resumed) or finish() (never to be).
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// entry must not return.
  void prepare(void (*entry)(void*), void* argument);
  /// Runs the fiber until it leaves; called by whoever runs the fibers.
  void resume();
  /// Called by the fiber.
  void leave() { back(false); }
  void finish() { back(true); }
  /// Called when the fiber will not run again.
  void discard();

 private:
  static void begin(Fiber* fiber);
  void back(bool last);

  char* stack_ = nullptr;
  void* own_ = nullptr;  // saved stack pointer, or the context
  void* resumer_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* own_thread_ = nullptr;  // of the thread sanitizer
  void* resumer_thread_ = nullptr;
  const void* resumer_stack_ = nullptr;  // of the address sanitizer
  std::size_t resumer_size_ = 0;
};

/// For the thread sanitizer: what the caller did before release(token) happened before what follows
/// acquire(token).
void acquire(void* token);
void release(void* token);
/// Whether memory may be used for a second block, or would look like a race between blocks.
bool memory_is_reusable();

}  // namespace amaxscope::emulator

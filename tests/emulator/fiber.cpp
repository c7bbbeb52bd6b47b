#include "tests/emulator/fiber.hpp"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#ifdef AMAXSCOPE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
// This file is compiled without -fsanitize=thread, so that its own bookkeeping is not looked at.
#ifdef AMAXSCOPE_EMULATOR_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace amaxscope::emulator {

namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kStack = std::size_t{128} << 10;

#ifdef AMAXSCOPE_EMULATOR_TSAN
constexpr unsigned kNoSynchronization = 1;
#endif

/// Stacks that no fiber has: mapping them anew for each launch takes longer than most kernels.
class Stacks {
 public:
  char* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!unused_.empty()) {
        char* stack = unused_.back();
        unused_.pop_back();
        return stack;
      }
    }
    void* memory = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuard, PROT_NONE);
    return static_cast<char*>(memory) + kGuard;
  }
  void give_back(char* stack) {
    // For the thread sanitizer, a stack that is used again would look like a race between the fibers that had
    // it.
    if (!memory_is_reusable()) {
      munmap(stack - kGuard, kStack + kGuard);
      return;
    }
    const std::lock_guard lock(mutex_);
    unused_.push_back(stack);
  }

 private:
  std::mutex mutex_;
  std::vector<char*> unused_;
};

/// Until the end of the process.
Stacks& stacks() {
  static Stacks stacks;
  return stacks;
}

}  // namespace

#ifdef __x86_64__
// Saves what a call preserves on the running stack and its pointer in *save, and goes on with the stack
// `load`.
extern "C" void amaxscope_emulator_switch(void** save, void* load);
asm(R"(
.text
.globl amaxscope_emulator_switch
.type amaxscope_emulator_switch,@function
amaxscope_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size amaxscope_emulator_switch,.-amaxscope_emulator_switch
.section .note.GNU-stack,"",@progbits
.text
)");
// Where a new stack begins: the fiber is in r12, which the switch has restored.
extern "C" void amaxscope_emulator_start();
asm(R"(
.text
.globl amaxscope_emulator_start
.type amaxscope_emulator_start,@function
amaxscope_emulator_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.size amaxscope_emulator_start,.-amaxscope_emulator_start
)");
#endif

Fiber::~Fiber() {
  if (stack_ != nullptr) stacks().give_back(stack_);
#ifndef __x86_64__
  delete static_cast<ucontext_t*>(own_);
  delete static_cast<ucontext_t*>(resumer_);
#endif
}

void Fiber::prepare(void (*entry)(void*), void* argument) {
  if (stack_ == nullptr) stack_ = stacks().take();
#ifdef AMAXSCOPE_ASAN
  // The fiber that had the stack before did not return from its functions.
  __asan_unpoison_memory_region(stack_, kStack);
#endif
  entry_ = entry;
  argument_ = argument;
#ifdef __x86_64__
  // From the top: a null return address, which also aligns the stack as a call does,
  // amaxscope_emulator_start, and the six registers it is entered with.
  void** top = reinterpret_cast<void**>(stack_ + kStack);
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&amaxscope_emulator_start);
  top -= 6;
  std::memset(top, 0, 6 * sizeof(void*));
  top[3] = this;                                    // r12
  top[2] = reinterpret_cast<void*>(&Fiber::begin);  // r13
  own_ = top;
#else
  if (own_ == nullptr) {
    own_ = new ucontext_t;
    resumer_ = new ucontext_t;
  }
  auto* context = static_cast<ucontext_t*>(own_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStack;
  context->uc_link = nullptr;
  // makecontext passes ints only: the pointer goes in two halves.
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  makecontext(context, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
                begin(reinterpret_cast<Fiber*>((std::uintptr_t{high} << 32) | low));
              }),
              2, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#endif
#ifdef AMAXSCOPE_EMULATOR_TSAN
  own_thread_ = __tsan_create_fiber(0);
#endif
}

void Fiber::begin(Fiber* fiber) {
#ifdef AMAXSCOPE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->resumer_stack_, &fiber->resumer_size_);
#endif
  fiber->entry_(fiber->argument_);
  __builtin_trap();
}

void Fiber::resume() {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  resumer_thread_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_thread_, kNoSynchronization);
#endif
#ifdef AMAXSCOPE_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, kStack);
#endif
#ifdef __x86_64__
  amaxscope_emulator_switch(&resumer_, own_);
#else
  swapcontext(static_cast<ucontext_t*>(resumer_), static_cast<ucontext_t*>(own_));
#endif
#ifdef AMAXSCOPE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::back([[maybe_unused]] bool last) {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  __tsan_switch_to_fiber(resumer_thread_, kNoSynchronization);
#endif
#ifdef AMAXSCOPE_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack, resumer_stack_, resumer_size_);
#endif
#ifdef __x86_64__
  amaxscope_emulator_switch(&own_, resumer_);
#else
  swapcontext(static_cast<ucontext_t*>(own_), static_cast<ucontext_t*>(resumer_));
#endif
#ifdef AMAXSCOPE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &resumer_stack_, &resumer_size_);
#endif
}

void Fiber::discard() {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  if (own_thread_ != nullptr) __tsan_destroy_fiber(own_thread_);
  own_thread_ = nullptr;
  if (stack_ != nullptr) stacks().give_back(stack_);
  stack_ = nullptr;
#endif
}

void acquire([[maybe_unused]] void* token) {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  __tsan_acquire(token);
#endif
}
void release([[maybe_unused]] void* token) {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  __tsan_release(token);
#endif
}
bool memory_is_reusable() {
#ifdef AMAXSCOPE_EMULATOR_TSAN
  return false;
#else
  return true;
#endif
}

}  // namespace amaxscope::emulator

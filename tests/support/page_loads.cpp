#include "tests/support/page_loads.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace amaxscope::testing {

namespace {

struct State {
  std::byte* data = nullptr;
  std::size_t pages = 0;
  std::vector<std::size_t> cached;  ///< a ring of page numbers
  std::size_t filled = 0;
  std::size_t next = 0;
  std::size_t loads = 0;
  struct sigaction before = {};
};
State state;  // a signal handler has no other way to it

void set_access(std::size_t page, std::size_t count, int access) {
  if (mprotect(state.data + page * PageLoads::kPage, count * PageLoads::kPage, access) != 0) abort();
}

void take_in(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const auto first = reinterpret_cast<std::uintptr_t>(state.data);
  if (address < first || address >= first + state.pages * PageLoads::kPage) {
    sigaction(signal, &state.before, nullptr);  // not ours: happens again, to whoever was there
    return;
  }
  const std::size_t page = (address - first) / PageLoads::kPage;
  if (state.filled == state.cached.size()) {
    set_access(state.cached[state.next], 1, PROT_NONE);
  } else {
    ++state.filled;
  }
  state.cached[state.next] = page;
  state.next = (state.next + 1) % state.cached.size();
  ++state.loads;
  set_access(page, 1, PROT_READ);
}

}  // namespace

PageLoads::PageLoads(std::size_t bytes, std::size_t cached_bytes) {
  if (state.data != nullptr || cached_bytes < kPage)
    throw std::logic_error("one PageLoads, of at least a page");
  state.pages = (bytes + kPage - 1) / kPage;
  state.cached.assign(cached_bytes / kPage, 0);
  void* const mapped =
      mmap(nullptr, state.pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("no memory for PageLoads");
  state.data = static_cast<std::byte*>(mapped);
  struct sigaction action = {};
  action.sa_sigaction = take_in;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &state.before);
}

PageLoads::~PageLoads() {
  sigaction(SIGSEGV, &state.before, nullptr);
  munmap(state.data, state.pages * kPage);
  state = {};
}

void* PageLoads::data() const noexcept { return state.data; }

void PageLoads::open() { set_access(0, state.pages, PROT_READ | PROT_WRITE); }

void PageLoads::start() {
  set_access(0, state.pages, PROT_NONE);
  state.filled = state.next = state.loads = 0;
}

std::size_t PageLoads::bytes_read() const noexcept { return state.loads * kPage; }

}  // namespace amaxscope::testing

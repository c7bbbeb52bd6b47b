#include "runtime/live/signal_flag.hpp"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>

#include "core/error.hpp"

namespace amaxscope {

namespace {

// A handler gets nothing but the number of its signal, so what it counts must be reachable from everywhere.
struct Handled {
  std::atomic<std::uint32_t> arrivals{0};
  std::mutex mutex;  ///< of the two below; never taken by the handler
  int users = 0;
  struct sigaction before = {};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a signal handler must not wait for a lock");

Handled& handled() {
  static Handled one;
  return one;
}

void count_arrival(int) { handled().arrivals.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

SignalFlag::SignalFlag() {
  Handled& shared = handled();
  const std::scoped_lock lock(shared.mutex);
  known_ = shared.arrivals.load();
  if (shared.users == 0) {
    struct sigaction action = {};
    action.sa_handler = count_arrival;
    action.sa_flags = SA_RESTART;  // reads and writes of the training go on
    sigemptyset(&action.sa_mask);
    AMAXSCOPE_CHECK(sigaction(SIGUSR1, &action, &shared.before) == 0, ErrorCode::kUsage,
                    "SIGUSR1 cannot be handled: {}", std::generic_category().message(errno));
  }
  ++shared.users;
}

SignalFlag::~SignalFlag() {
  Handled& shared = handled();
  const std::scoped_lock lock(shared.mutex);
  if (--shared.users == 0) sigaction(SIGUSR1, &shared.before, nullptr);
}

bool SignalFlag::seen() const noexcept { return handled().arrivals.load() != known_; }
void SignalFlag::taken() noexcept { known_ = handled().arrivals.load(); }

}  // namespace amaxscope

// Whether a signal has arrived.
#include "runtime/live/signal_flag.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace amaxscope {
namespace {

volatile std::sig_atomic_t arrived_before = 0;

TEST(SignalFlag, EveryFlagSeesEachArrivalOnce) {
  SignalFlag one;
  SignalFlag two;
  EXPECT_FALSE(one.seen());
  std::raise(SIGUSR1);
  EXPECT_TRUE(one.seen());
  one.taken();
  EXPECT_FALSE(one.seen());
  EXPECT_TRUE(two.seen());
  SignalFlag late;
  EXPECT_FALSE(late.seen());
}

TEST(SignalFlag, TheHandlerBeforeIsPutBackWithTheLast) {
  std::signal(SIGUSR1, [](int) { arrived_before = 1; });
  std::optional<SignalFlag> one(std::in_place);
  std::optional<SignalFlag> two(std::in_place);
  one.reset();
  std::raise(SIGUSR1);
  EXPECT_TRUE(two->seen());
  EXPECT_EQ(arrived_before, 0);
  two.reset();
  std::raise(SIGUSR1);
  EXPECT_EQ(arrived_before, 1);
  std::signal(SIGUSR1, SIG_DFL);
}

}  // namespace
}  // namespace amaxscope

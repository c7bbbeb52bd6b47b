// What `amaxscope watch` shows. Pure functions.
#pragma once

#include <string>

#include "launch/run_follower.hpp"

namespace amaxscope::launch {

struct Screen {
  std::size_t columns = 80;
  std::size_t rows = 24;
  bool color = false;
};

/// One screen, each line ended by a newline and not longer than the screen is wide.
std::string watch_screen(const RunView& view, const std::string& name, const Screen& screen);

/// Where output is kept: one line for how far it is, with what ranks are in trouble and the verdict.
std::string watch_line(const RunView& view);
std::string alarm_line(const Alarm& alarm);

/// Ranks that are detached, failed, stopped, gone or behind the others, in words; empty: none.
std::string ranks_in_trouble(const RunView& view);

}  // namespace amaxscope::launch

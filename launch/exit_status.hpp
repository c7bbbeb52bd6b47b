// Exit statuses of every command.
#pragma once

namespace amaxscope::launch {

enum ExitStatus : int {
  kDone = 0,
  kAnswerIsNo = 1,  ///< differences found, something is wrong, the run failed
  kBadInput = 2,    ///< wrong use or bad input
};

}  // namespace amaxscope::launch

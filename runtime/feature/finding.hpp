// What a check found: the cause in words, with everything that a report needs to place it. A value type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/names.hpp"

namespace amaxscope {

struct Finding {
  std::string check;           ///< "I3", "nonfinite", ...: what kind of thing this is
  std::int64_t iteration = 0;  ///< at which it was seen
  std::string layer;           ///< or observed name; empty: the whole job
  std::string tensor;
  Phase phase = Phase::kForward;
  int microbatch = 0;
  std::vector<int> ranks;  ///< world ranks that are concerned; empty: the one that reports
  std::string what;        ///< one sentence: what was found, and against what
  std::map<std::string, std::string> details = {};  ///< numbers behind the sentence, by name
};

/// "rank 3", "ranks 0,2".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace amaxscope

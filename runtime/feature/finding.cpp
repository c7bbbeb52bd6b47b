#include "runtime/feature/finding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace amaxscope {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ","));
}

}  // namespace amaxscope

// What a page shows of another run beside its own: where the two part, and the other's numbers.
#pragma once

#include <filesystem>
#include <string>

#include "report/diff.hpp"
#include "report/page/page_data.hpp"

namespace amaxscope::report {

struct Against {
  std::string name;  ///< as the user gave it
  Diff diff;         ///< A: the run of the page, B: the other
  PageData data;     ///< of the other
};

/// Reads both. Throws Error(kInput) when one is no directory.
Against read_against(const std::filesystem::path& log_dir, const std::filesystem::path& other);

}  // namespace amaxscope::report

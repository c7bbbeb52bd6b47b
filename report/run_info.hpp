// run.json of a log directory. Internal to report/.
#pragma once

#include <filesystem>

#include "report/records.hpp"

namespace amaxscope::report {

/// Adds the runs and what is wrong with the file to reading. Throws nothing for what is in it.
void read_run_file(const std::filesystem::path& path, Reading& reading);

}  // namespace amaxscope::report

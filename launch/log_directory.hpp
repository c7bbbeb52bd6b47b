// Where a training's logs go.
#pragma once

#include <string>

namespace amaxscope::launch {

/// "amaxscope_logs/20260131-051157", local time, made distinct from what exists.
std::string default_log_directory();

/// Throws Error(kInput) when logs cannot be written there (a file stands in the way, no permission) or when
/// it holds a run already: iterations from 0 on would be added to that run's. Creates nothing.
void require_fresh_log_directory(const std::string& directory);

}  // namespace amaxscope::launch

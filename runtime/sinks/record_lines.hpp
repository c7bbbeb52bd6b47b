// What the run's JSON lines look like, each with its newline (config.md section 5). Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/sinks/sink.hpp"

namespace amaxscope {

std::string json_line(const StatRecord& record);
std::string json_line(std::int64_t iteration, const Scalars& values);
std::string json_line(const Finding& finding);
/// iteration: at which the ranks agreed on it.
std::string json_line(std::int64_t iteration, const Event& event);

}  // namespace amaxscope

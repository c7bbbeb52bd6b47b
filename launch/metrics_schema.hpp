// What a line of metrics/*.jsonl must look like (docs/records.md). Pure functions. Internal to metrics_check.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace amaxscope::launch {

/// What is wrong with a line that tells something of an iteration (a record, scalars, a finding, an event):
/// the member, what it is and what is wanted. Empty: nothing. Members that the schema does not know are
/// passed by, as by every reader. object: a JSON object with an iteration. world_size: ranks of the run; 0:
/// not known.
std::string shape_problem(const nlohmann::json& object, std::int64_t world_size);

}  // namespace amaxscope::launch

// JSON scalars as the run's files hold them (config.md section 5). Internal to the sinks; pure functions.
#pragma once

#include <string>
#include <string_view>

namespace amaxscope {

/// Quoted and escaped; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
/// 17 significant digits, which read back bit-equal; "NaN", "Infinity" and "-Infinity" as strings.
std::string json_number(double value);

}  // namespace amaxscope

// A verdict for people and for programs.
#pragma once

#include <string>

#include "report/verdict.hpp"

namespace amaxscope::report {

/// At most 25 lines before the YAML, each for a terminal of 110 columns; the YAML to paste, if any, at the
/// end.
std::string as_text(const Verdict& verdict);
/// The same in few lines, for the end of a training: verdict, where, why, what to do next. log_dir: for the
/// hint.
std::string as_short_text(const Verdict& verdict, const std::string& log_dir);
/// The outcome, the sentence, and since when, on one line: "found: ..., since iteration 41 (certain)".
std::string as_line(const Verdict& verdict);
/// One JSON object with a "version" (Verdict::kVersion), indented by two.
std::string as_json(const Verdict& verdict, int indent = 2);

}  // namespace amaxscope::report

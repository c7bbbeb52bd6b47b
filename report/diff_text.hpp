// A comparison of two runs for people and for programs.
#pragma once

#include <string>

#include "report/diff.hpp"

namespace amaxscope::report {

/// What was compared, where they part and what follows: some 30 lines for a terminal of 110 columns. name_a,
/// name_b: the directories.
std::string as_text(const Diff& diff, const std::string& name_a, const std::string& name_b);
/// A few lines under a verdict: how the run differs from another.
std::string as_short_text(const Diff& diff, const std::string& name_b);
/// Whether and where they part, in one sentence; in_a, in_b: "in A", "here".
std::string as_sentence(const Diff& diff, const std::string& in_a = "in A", const std::string& in_b = "in B");
/// One JSON object with a "version" (Diff::kVersion).
std::string as_json(const Diff& diff);

}  // namespace amaxscope::report

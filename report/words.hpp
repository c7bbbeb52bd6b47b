// How places, ranks and layers are named in sentences. Internal to report/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/evidence.hpp"

namespace amaxscope::report {

/// "decoder.layers.1.mlp.linear_fc1 weight", and "and 7 more" where there are several.
std::string named(const std::vector<Place>& places);
/// "rank 1", "ranks 0, 1"; "all ranks" for none; at most eight of them.
std::string named_ranks(const std::vector<std::int64_t>& ranks);
/// What stands in the way of a terminal or of a line is replaced by "?"; at most `longest` bytes.
std::string printable(const std::string& text, std::size_t longest = 400);
/// A section that applies a feature to these layers, as YAML.
std::string yaml_section(const std::string& name, const std::vector<Place>& places,
                         const std::string& feature);
/// The GEMMs that read this copy ("rowwise", "columnwise", or empty: both) of an operand.
std::vector<std::string> gemms_of(const std::string& tensor, const std::string& copy);

}  // namespace amaxscope::report

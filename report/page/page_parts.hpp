// page.html with its style and script, as the build has put them together. Internal to report/page.
#pragma once

#include <string_view>

namespace amaxscope::report {

/// Holds kPlaceOfText and kPlaceOfData once each.
std::string_view page_template() noexcept;

inline constexpr std::string_view kPlaceOfText = "@THE_VERDICT_AS_TEXT@";
inline constexpr std::string_view kPlaceOfData = "@THE_DATA@";

}  // namespace amaxscope::report

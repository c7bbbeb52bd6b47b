// The data of the page as the text of one JSON object (docs/report.md has its shape). Internal to
// report/page.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "report/page/against.hpp"
#include "report/page/page_data.hpp"
#include "report/verdict.hpp"

namespace amaxscope::report {

/// Safe inside of <script type="application/json">: no "<", ">" or "&" in it, whatever names the records
/// have.
std::string page_json(const Verdict& verdict, const Evidence& evidence, const PageData& data,
                      const Against* against = nullptr);

/// Safe as text of an element.
std::string escaped_html(std::string_view text);

/// Floats, little endian, in base64.
std::string base64_of(std::span<const float> values);

}  // namespace amaxscope::report

// Text for a terminal or a log that people look at, where names of files, layers and tensors may be of
// strangers.
#pragma once

#include <string>
#include <string_view>

namespace amaxscope {

/// The text with a "?" for each character that a terminal acts on instead of showing it: the control
/// characters but newline and tab, those of C1 (U+0080 to U+009F, of which U+009B begins a sequence as ESC [
/// does), those that turn the direction of writing, and bytes that are not UTF-8.
std::string terminal_text(std::string_view text);

/// The same in one line: newlines and tabs are replaced, too.
std::string terminal_line(std::string_view text);

}  // namespace amaxscope

// The page of a run: one HTML file that holds the verdict and all numbers, and opens from disk without a
// network. Not thread safe for one directory; blocks on the disk.
#pragma once

#include <filesystem>
#include <string>

#include "report/page/against.hpp"
#include "report/page/page_data.hpp"
#include "report/verdict.hpp"

namespace amaxscope::report {

/// The whole file. Everything that stands in the records is data in it, never markup. against: null, or
/// another run that is shown beside it.
std::string page_html(const Verdict& verdict, const Evidence& evidence, const PageData& data,
                      const Against* against = nullptr);

/// Reads log_dir once, judges it and writes the page to `file`, whole or not at all. A run without data gets
/// no page: the verdict says so (Outcome::kNoData). Throws Error(kInput) when log_dir is no directory,
/// Error(kIo) when the file cannot be written.
Verdict write_page(const std::filesystem::path& log_dir, const std::filesystem::path& file,
                   const Against* against = nullptr);

}  // namespace amaxscope::report

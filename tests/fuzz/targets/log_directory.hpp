// A log directory of the process, for targets that read one of its files.
#pragma once

#include "report/records.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

/// With these two files; the same folder at each call.
inline std::filesystem::path log_directory(std::string_view run_json, std::string_view metrics) {
  file_with(metrics, "log/metrics/rank_0.jsonl");
  return file_with(run_json, "log/run.json").parent_path();
}

/// As `report` reads it.
inline void read_log(const std::filesystem::path& log) {
  class Nobody final : public report::RecordVisitor {
    void record(const report::RecordLine&) override {}
    void scalars(std::int64_t, const std::map<std::string, double>&) override {}
    void finding(const report::FindingLine&) override {}
  } nobody;
  (void)report::read_records(log, nobody);
}

}  // namespace amaxscope::fuzz

// The files of a run (config.md section 5).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "core/clock.hpp"
#include "runtime/sinks/sink.hpp"

namespace amaxscope {

/// nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-R.log under log_dir, the lines that parsers of
/// nvidia-dlfw-inspect read, with 9 significant digits. Training phases only, from every rank that has the
/// record. One write a step. Appends; iterations that the file has already are not written again, but its
/// newest, which a kill may have left a part of, takes the place of what is there. A line break in a name is
/// written as \n. Throws Error(kIo).
std::unique_ptr<Sink> make_text_sink(const std::filesystem::path& log_dir, int world_rank,
                                     std::shared_ptr<const Clock> clock = nullptr);

struct JsonLinesOptions {
  bool every_rank = false;  ///< false: only records this rank leads
  std::string run_id;       ///< written in the first line of each opening
};

/// metrics/rank_R.jsonl under log_dir: one object a line, one write a step. The first line of each opening is
/// {"schema_version":1,"run_id":..,"rank":R}, the last of a step
/// {"iteration":i,"end_of_step":true,"records":n}, n being the lines of the step (records, scalars,
/// findings, events) before it; a step without any writes nothing. The last of a run that was closed is
/// {"iteration":i,"end_of_run":true}, on every rank. The file appears with its first content. docs/records.md
/// describes every line.
/// An incomplete last line left by a crash is ended first, so that later lines stay readable. Steps at or
/// before the last completed one in the file are not written again. Throws Error(kIo).
std::unique_ptr<Sink> make_json_lines_sink(const std::filesystem::path& log_dir, int world_rank,
                                           JsonLinesOptions options);

/// Calls back; for tests and for programs that keep the numbers themselves.
std::unique_ptr<Sink> make_callback_sink(std::function<void(const StatRecord&)> on_record,
                                         std::function<void(std::int64_t, const Scalars&)> on_scalars = {},
                                         std::function<void(const Finding&)> on_finding = {},
                                         std::function<void(std::int64_t, const Event&)> on_event = {});

}  // namespace amaxscope

// What a rank writes down when the job has agreed on an event: events/iter_%06d/ under the log directory.
// Blocks on the disk; throws Error(kIo).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "runtime/feature/event.hpp"
#include "runtime/live/recent_steps.hpp"

namespace amaxscope {

/// log_dir/events/iter_000041
std::filesystem::path event_folder(const std::filesystem::path& log_dir, std::int64_t iteration);

/// What a feature of this rank remembers, and which feature it is.
struct Recollection {
  std::string feature;
  RecentTensor tensor;
};

struct EventRecord {
  std::string run_id;
  int rank = 0;
  std::int64_t iteration = 0;  ///< at which the ranks agreed
  std::span<const Event> events;
  const RecentSteps* steps = nullptr;
  std::span<const Recollection> recent;
};

/// Writes event_folder/rank_R.jsonl, whole or not at all, one object a line: the header
/// {"schema_version":1,"run_id":.., "rank":R,"iteration":..}, the events as metrics/ has them, the records of
/// the steps kept, oldest first, as metrics/ has them (of every rank, whoever leads the group), then what
/// features remember:
/// {"iteration":..,"layer":..,"tensor":..,"phase":..,"microbatch":..,"feature":..,"recent":{..}}.
/// A restarted run that comes to the iteration again replaces what was there. Returns the file.
std::filesystem::path write_event_record(const std::filesystem::path& log_dir, const EventRecord& record);

}  // namespace amaxscope

#include "launch/flight_rank.hpp"

#include "collectives/flight_reader.hpp"
#include "collectives/flight_recorder.hpp"
#include "core/error.hpp"

namespace amaxscope::launch {

FlightRank read_rank(const std::filesystem::path& directory, int rank) {
  FlightRank found;
  found.rank = rank;
  try {
    found.record = read_flight_record(FlightRecorder::file_of(directory, rank));
    found.process = process_state(found.record->status);
  } catch (const Error& error) {
    found.trouble = error.what();
  }
  return found;
}

bool has_died(const FlightRank& rank) noexcept {
  return rank.process == ProcessState::kGone && rank.record &&
         rank.record->status.state != FlightState::kFinished;
}

}  // namespace amaxscope::launch

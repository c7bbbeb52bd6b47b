// A flight record: of a process that lives, was killed, or of somebody else altogether.
#include "collectives/flight_reader.hpp"

#include "collectives/flight_recorder.hpp"
#include "collectives/flight_text.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  const std::filesystem::path folder = file_with("", "flight/beside").parent_path();
  {
    const auto recorder = FlightRecorder::in_directory(folder, 1, 2, {.entries = 4});
    const std::vector<int> both = {0, 1};
    const std::size_t group = recorder->add_group("tp", both);
    recorder->set_iteration(7);
    recorder->set_where("quantize", "decoder.layers.1.mlp.linear_fc1", "activation");
    for (int call = 0; call < 6; ++call) {
      const auto ticket = recorder->begin(
          group, {.operation = FlightOperation::kAllReduce, .tag = {}, .count = 12, .dtype = DType::kU32});
      if (call < 5) recorder->end(ticket, FlightOutcome::kCompleted);
    }
  }
  return {bytes_of(FlightRecorder::file_of(folder, 1)), "AMAXSFLT"};
}

void read(std::string_view bytes) {
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
  const std::span<const std::byte> all(begin, bytes.size());
  const FlightSnapshots taken = {all, all, all};
  may_refuse([&] { (void)decode_flight_record(taken, "fuzz"); });
  may_refuse([&] { (void)decode_flight_status(taken, "fuzz"); });
}

}  // namespace amaxscope::fuzz

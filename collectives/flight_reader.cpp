#include "collectives/flight_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "collectives/flight_layout.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::uint32_t kMostRanks = 1U << 24U;
/// Of all groups together: more than any job has, less than would fill the memory.
constexpr std::size_t kMostMembers = 1U << 22U;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& file)
      : name_(file.string()), descriptor_(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    AMAXSCOPE_CHECK(descriptor_ >= 0, ErrorCode::kInput, "{}: cannot be read: {}", name_,
                    std::generic_category().message(errno));
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::size_t size() const {
    struct stat status {};
    AMAXSCOPE_CHECK(fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode), ErrorCode::kInput,
                    "{}: is not a file", name_);
    return static_cast<std::size_t>(status.st_size);
  }
  void read(std::span<std::byte> into) const {
    std::size_t done = 0;
    while (done < into.size()) {
      const ssize_t got =
          pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      AMAXSCOPE_CHECK(got > 0, ErrorCode::kInput, "{}: {}", name_,
                      got == 0 ? "ends early" : std::generic_category().message(errno));
      done += static_cast<std::size_t>(got);
    }
  }

 private:
  std::string name_;
  int descriptor_;
};

struct Snapshots {
  std::array<std::vector<std::byte>, 3> bytes;
  [[nodiscard]] FlightSnapshots views() const { return {bytes[0], bytes[1], bytes[2]}; }
};

Snapshots snapshots_of(const std::filesystem::path& file, bool entries) {
  const OpenFile open_file(file);
  const std::size_t size = open_file.size();
  AMAXSCOPE_CHECK(size >= kFlightStatusBytes && size <= flight_bytes(kMostFlightEntries), ErrorCode::kInput,
                  "{}: {} bytes are no flight record", file.string(), size);
  Snapshots taken;
  for (std::vector<std::byte>& bytes : taken.bytes) {
    bytes.resize(entries ? size : kFlightStatusBytes);
    open_file.read(bytes);
  }
  return taken;
}

template <class T>
T at(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Without what would move a terminal's cursor.
template <std::size_t N>
std::string text_of(const FlightText<N>& bytes) {
  std::string text(bytes.begin(), std::ranges::find(bytes, '\0'));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return text;
}

std::chrono::system_clock::time_point time_of(std::uint64_t ns) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(static_cast<std::int64_t>(ns))));
}

std::vector<int> members_of(const FlightGroupSlot& slot, std::span<const std::byte> bytes,
                            std::uint32_t world_size, std::size_t& members, const std::string& source) {
  std::vector<int> ranks;
  AMAXSCOPE_CHECK(slot.first_run <= kFlightRuns && slot.runs <= kFlightRuns - slot.first_run,
                  ErrorCode::kInput, "{}: damaged: a group of {} runs from {}", source, slot.runs,
                  slot.first_run);
  for (std::size_t i = 0; i < slot.runs; ++i) {
    const auto run = at<FlightRun>(bytes, kFlightRunsOffset + (slot.first_run + i) * sizeof(FlightRun));
    members += run.count;
    const std::uint64_t last =
        run.first + std::uint64_t{run.stride} * (run.count - (run.count > 0 ? 1U : 0U));
    AMAXSCOPE_CHECK(run.count > 0 && run.stride > 0 && last < world_size && members <= kMostMembers,
                    ErrorCode::kInput, "{}: damaged: a group of {} ranks up to {} in a world of {}", source,
                    run.count, last, world_size);
    for (std::uint64_t rank = run.first; rank <= last; rank += run.stride)
      ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::optional<FlightWait> wait_of(std::uint64_t inside, std::size_t groups, const std::string& source) {
  if (inside == 0) return std::nullopt;
  const std::uint64_t group = (inside & ~FlightInside::kPeer) >> FlightInside::kGroupShift;
  AMAXSCOPE_CHECK(group >= 1 && group <= groups, ErrorCode::kInput, "{}: damaged: inside of group {} of {}",
                  source, group, groups);
  FlightWait wait;
  wait.group = group - 1;
  if ((inside & FlightInside::kPeer) != 0) {
    wait.world_peer = static_cast<int>(inside & FlightInside::kLow);
  } else {
    wait.sequence = inside & FlightInside::kLow;
  }
  return wait;
}

/// Nothing for a slot that was never used or is being written.
std::optional<FlightCall> call_of(const FlightSnapshots& taken, std::size_t index, std::size_t entries,
                                  std::size_t groups, const std::string& source) {
  const std::size_t offset = kFlightStatusBytes + index * sizeof(FlightSlot);
  const auto written = at<FlightSlot>(taken[0], offset).written;
  const auto slot = at<FlightSlot>(taken[1], offset);
  const auto begun = at<FlightSlot>(taken[2], offset).begun;
  if (written == 0 || written != begun) return std::nullopt;
  const bool sound = (written - 1) % entries == index && slot.group < groups &&
                     slot.operation <= static_cast<int>(FlightOperation::kReceive) &&
                     slot.op <= static_cast<int>(ReduceOp::kMax) &&
                     slot.dtype <= static_cast<int>(DType::kI64) &&
                     slot.traffic <= static_cast<int>(Traffic::kDebug) &&
                     slot.outcome <= static_cast<std::uint64_t>(FlightOutcome::kFailed) && slot.peer >= -1;
  AMAXSCOPE_CHECK(sound, ErrorCode::kInput, "{}: damaged: entry {} has impossible values", source, index);
  FlightCall call;
  call.number = written - 1;
  call.group = slot.group;
  call.sequence = slot.sequence;
  call.operation = static_cast<FlightOperation>(slot.operation);
  call.op = static_cast<ReduceOp>(slot.op);
  call.dtype = static_cast<DType>(slot.dtype);
  call.count = slot.count;
  call.peer = slot.peer;
  call.traffic = static_cast<Traffic>(slot.traffic);
  call.what = text_of(slot.what);
  call.layer = text_of(slot.layer);
  call.tensor = text_of(slot.tensor);
  call.iteration = static_cast<std::int64_t>(slot.iteration);
  call.begin = time_of(slot.begin_ns);
  call.outcome = static_cast<FlightOutcome>(slot.outcome);
  if (call.outcome != FlightOutcome::kRunning) call.end = time_of(slot.end_ns);
  return call;
}

}  // namespace

FlightStatus decode_flight_status(const FlightSnapshots& taken, const std::string& source) {
  AMAXSCOPE_CHECK(taken[0].size() >= kFlightStatusBytes && taken[1].size() == taken[0].size() &&
                      taken[2].size() == taken[0].size(),
                  ErrorCode::kInput, "{}: {} bytes are no flight record", source, taken[0].size());
  const auto first = at<FlightHeader>(taken[0], 0);
  AMAXSCOPE_CHECK(first.magic == kFlightMagic, ErrorCode::kInput, "{}: is no flight record", source);
  AMAXSCOPE_CHECK(first.version == kFlightVersion, ErrorCode::kInput,
                  "{}: a flight record of version {}; this program reads version {}", source, first.version,
                  kFlightVersion);
  const auto header = at<FlightHeader>(taken[1], 0);
  const auto last = at<FlightHeader>(taken[2], 0);
  AMAXSCOPE_CHECK(header.world_size <= kMostRanks && header.world_rank < header.world_size &&
                      header.state <= static_cast<std::uint64_t>(FlightState::kFinished) &&
                      header.group_count <= kFlightGroups,
                  ErrorCode::kInput, "{}: damaged: rank {} of {}, state {}, {} groups", source,
                  header.world_rank, header.world_size, header.state, header.group_count);
  FlightStatus status;
  status.world_rank = static_cast<int>(header.world_rank);
  status.world_size = static_cast<int>(header.world_size);
  status.pid = header.pid;
  status.process_start = header.process_start;
  status.pid_namespace = header.pid_namespace;
  status.created = time_of(header.created_ns);
  status.host = text_of(header.host);
  status.machine = text_of(header.machine);
  status.state = static_cast<FlightState>(header.state);
  status.iteration = static_cast<std::int64_t>(header.iteration);
  status.progress = header.progress;
  status.updated = time_of(header.updated_ns);
  if (first.where_written == last.where_begun) status.where = text_of(header.where);
  // A group that the first look has not seen yet may be half there in the second.
  const std::size_t groups = std::min(first.group_count, header.group_count);
  std::size_t members = 0;
  for (std::size_t i = 0; i < groups; ++i) {
    const auto slot = at<FlightGroupSlot>(taken[1], kFlightGroupsOffset + i * sizeof(FlightGroupSlot));
    FlightGroup group{text_of(slot.name), members_of(slot, taken[1], header.world_size, members, source),
                      slot.calls, std::nullopt};
    if (slot.left != 0) group.left_at = slot.left - 1;
    status.groups.push_back(std::move(group));
  }
  // Of the first look, whose groups these are.
  status.inside = wait_of(first.inside, groups, source);
  return status;
}

FlightRecord decode_flight_record(const FlightSnapshots& taken, const std::string& source) {
  FlightRecord record{decode_flight_status(taken, source), {}};
  const std::size_t entries = at<FlightHeader>(taken[1], 0).entries;
  AMAXSCOPE_CHECK(entries >= 1 && entries <= kMostFlightEntries && taken[1].size() == flight_bytes(entries),
                  ErrorCode::kInput, "{}: {} bytes do not hold {} entries", source, taken[1].size(), entries);
  for (std::size_t i = 0; i < entries; ++i) {
    if (auto call = call_of(taken, i, entries, record.status.groups.size(), source)) {
      record.calls.push_back(std::move(*call));
    }
  }
  std::ranges::sort(record.calls, {}, &FlightCall::number);
  return record;
}

FlightRecord read_flight_record(const std::filesystem::path& file) {
  return decode_flight_record(snapshots_of(file, /*entries=*/true).views(), file.string());
}

FlightStatus read_flight_status(const std::filesystem::path& file) {
  return decode_flight_status(snapshots_of(file, /*entries=*/false).views(), file.string());
}

}  // namespace amaxscope

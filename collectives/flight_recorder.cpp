#include "collectives/flight_recorder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "collectives/flight_layout.hpp"
#include "collectives/flight_process.hpp"
#include "collectives/flight_reader.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

std::uint64_t load(const std::uint64_t& word) noexcept {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_relaxed);
}
void store(std::uint64_t& word, std::uint64_t value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_release);
}
/// The stores before it are seen before those after it.
void publish_in_order() noexcept { std::atomic_thread_fence(std::memory_order_release); }

std::string_view tail(std::string_view text, std::size_t room) noexcept {
  // What tells names apart is mostly at their end.
  return text.size() <= room ? text : text.substr(text.size() - room);
}

template <std::size_t N>
void put(FlightText<N>& to, std::string_view text) noexcept {
  text = tail(text, N - 1);
  std::ranges::copy(text, to.begin());
  to[text.size()] = '\0';
}

/// Ranks that are equally far apart make one run.
std::vector<FlightRun> runs_of(const std::vector<int>& ranks) {
  std::vector<FlightRun> runs;
  for (const int rank : ranks) {
    const auto value = static_cast<std::uint32_t>(rank);
    if (!runs.empty()) {
      FlightRun& last = runs.back();
      if (last.count == 1 && value > last.first) {
        last.stride = value - last.first;
        ++last.count;
        continue;
      }
      if (value == last.first + last.stride * last.count) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({value, 1, 1});
  }
  return runs;
}

}  // namespace

/// The bytes, mapped from a file or allocated.
struct FlightRecorder::Memory {
  Memory(const std::filesystem::path& file, std::size_t size) : bytes(size) {
    if (file.empty()) {
      allocated.resize(size / sizeof(std::uint64_t));
      data = reinterpret_cast<std::byte*>(allocated.data());
      return;
    }
    unlink(file.c_str());  // of a process that was killed just here
    const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    AMAXSCOPE_CHECK(descriptor >= 0, ErrorCode::kIo, "{}: cannot be made: {}", file.string(),
                    std::generic_category().message(errno));
    // Room on the disk now: a store into a hole on a full disk would end the process.
    int failure = posix_fallocate(descriptor, 0, static_cast<off_t>(size));
    void* mapped = MAP_FAILED;
    if (failure == 0) {
      mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
      if (mapped == MAP_FAILED) failure = errno;
    }
    close(descriptor);
    if (failure != 0) unlink(file.c_str());
    AMAXSCOPE_CHECK(failure == 0, ErrorCode::kIo, "{}: {} bytes cannot be had: {}", file.string(), size,
                    std::generic_category().message(failure));
    data = static_cast<std::byte*>(mapped);
    mapped_from_file = true;
  }
  ~Memory() {
    if (mapped_from_file) munmap(data, bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  FlightHeader& header() noexcept { return *reinterpret_cast<FlightHeader*>(data); }
  FlightGroupSlot& group(std::size_t index) noexcept {
    return reinterpret_cast<FlightGroupSlot*>(data + kFlightGroupsOffset)[index];
  }
  FlightRun& run(std::size_t index) noexcept {
    return reinterpret_cast<FlightRun*>(data + kFlightRunsOffset)[index];
  }
  FlightSlot& slot(std::size_t index) noexcept {
    return reinterpret_cast<FlightSlot*>(data + kFlightStatusBytes)[index];
  }

  std::vector<std::uint64_t> allocated;
  std::byte* data = nullptr;
  std::size_t bytes;
  bool mapped_from_file = false;
};

std::filesystem::path FlightRecorder::file_of(const std::filesystem::path& directory, int world_rank) {
  return directory / fmt::format("rank_{}.flight", world_rank);
}

std::shared_ptr<FlightRecorder> FlightRecorder::in_directory(const std::filesystem::path& directory,
                                                             int world_rank, int world_size,
                                                             Options options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  AMAXSCOPE_CHECK(!error, ErrorCode::kIo, "{}: cannot be made: {}", directory.string(), error.message());
  return std::shared_ptr<FlightRecorder>(
      new FlightRecorder(directory, world_rank, world_size, std::move(options)));
}

std::shared_ptr<FlightRecorder> FlightRecorder::in_directory(const std::filesystem::path& directory,
                                                             int world_rank, int world_size) {
  return in_directory(directory, world_rank, world_size, Options());
}

std::shared_ptr<FlightRecorder> FlightRecorder::in_memory(int world_rank, int world_size, Options options) {
  return std::shared_ptr<FlightRecorder>(new FlightRecorder({}, world_rank, world_size, std::move(options)));
}

FlightRecorder::FlightRecorder(std::filesystem::path directory, int world_rank, int world_size,
                               Options options)
    : directory_(std::move(directory)),
      entries_(std::clamp<std::size_t>(options.entries, 1, kMostFlightEntries)),
      clock_(std::move(options.clock)) {
  if (clock_ == nullptr) clock_ = std::make_shared<const Clock>();
  const std::filesystem::path file = directory_.empty() ? "" : file_of(directory_, world_rank);
  // Under another name until it is whole; a reader never sees less, and what an earlier process maps stays
  // its own.
  std::filesystem::path unfinished = file;
  if (!file.empty()) unfinished += ".new";
  memory_ = std::make_unique<Memory>(unfinished, flight_bytes(entries_));

  FlightHeader& header = memory_->header();
  header.magic = kFlightMagic;
  header.version = kFlightVersion;
  header.entries = static_cast<std::uint32_t>(entries_);
  header.world_rank = static_cast<std::uint32_t>(world_rank);
  header.world_size = static_cast<std::uint32_t>(world_size);
  const OwnProcess self = own_process();
  header.pid = self.pid;
  header.process_start = self.start;
  header.pid_namespace = self.pid_namespace;
  put(header.host, self.host);
  put(header.machine, self.machine);
  header.iteration = static_cast<std::uint64_t>(std::int64_t{-1});
  header.created_ns = now_ns();
  created_ = status().created;
  touch(header.created_ns);
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::rename(unfinished, file, error);
  if (error) unlink(unfinished.c_str());
  AMAXSCOPE_CHECK(!error, ErrorCode::kIo, "{}: cannot be replaced: {}", file.string(), error.message());
}

FlightRecorder::~FlightRecorder() = default;

int FlightRecorder::world_rank() const noexcept { return static_cast<int>(memory_->header().world_rank); }

std::uint64_t FlightRecorder::now_ns() const noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(clock_->now().time_since_epoch()).count());
}

void FlightRecorder::touch(std::uint64_t now) noexcept {
  FlightHeader& header = memory_->header();
  store(header.updated_ns, now);
  store(header.progress, load(header.progress) + 1);
}

std::size_t FlightRecorder::add_group(std::string_view name, const std::vector<int>& world_ranks) {
  FlightHeader& header = memory_->header();
  const std::size_t index = load(header.group_count);
  if (index == kFlightGroups) return kFlightGroups - 1;  // the last one stands for all that have no room
  FlightGroup added{std::string(tail(name, sizeof(FlightGroupSlot::name) - 5)), world_ranks, 0, std::nullopt};
  const std::string stem = added.name;
  const FlightStatus known = status();
  for (int other = 2; known.find(added) != nullptr; ++other) added.name = fmt::format("{}#{}", stem, other);

  FlightGroupSlot& slot = memory_->group(index);
  if (index == kFlightGroups - 1) added.name = "(further groups)";
  put(slot.name, added.name);
  const std::vector<FlightRun> runs = runs_of(world_ranks);
  const std::size_t first = load(header.run_count);
  if (first + runs.size() <= kFlightRuns && index != kFlightGroups - 1) {
    for (std::size_t i = 0; i < runs.size(); ++i) memory_->run(first + i) = runs[i];
    slot.first_run = static_cast<std::uint32_t>(first);
    slot.runs = static_cast<std::uint32_t>(runs.size());
    store(header.run_count, first + runs.size());
  }
  store(header.group_count, index + 1);
  return index;
}

std::string FlightRecorder::group_name(std::size_t group) const { return status().groups.at(group).name; }

void FlightRecorder::set_state(FlightState state) noexcept {
  store(memory_->header().state, static_cast<std::uint64_t>(state));
  touch(now_ns());
}

void FlightRecorder::set_iteration(std::int64_t iteration) noexcept {
  store(memory_->header().iteration, static_cast<std::uint64_t>(iteration));
  touch(now_ns());
}

void FlightRecorder::set_where(std::string_view what, std::string_view layer,
                               std::string_view tensor) noexcept {
  FlightHeader& header = memory_->header();
  const std::uint64_t stamp = load(header.where_begun) + 1;
  store(header.where_begun, stamp);
  publish_in_order();
  std::size_t used = 0;
  const auto append = [&](std::string_view text) {
    text = text.substr(0, std::min(text.size(), header.where.size() - 1 - used));
    std::ranges::copy(text, header.where.begin() + static_cast<std::ptrdiff_t>(used));
    used += text.size();
  };
  append(what);
  for (const std::string_view part : {layer, tensor}) {
    if (part.empty()) continue;
    append(" ");
    append(part);
  }
  header.where[used] = '\0';
  store(header.where_written, stamp);
  touch(now_ns());
}

FlightRecorder::Ticket FlightRecorder::begin(std::size_t group, const FlightOp& op) noexcept {
  FlightHeader& header = memory_->header();
  const bool collective = is_collective(op.operation);
  FlightGroupSlot& member = memory_->group(group);
  const std::uint64_t sequence = load(member.calls);
  const Ticket ticket{load(header.next_number), sequence};
  store(header.next_number, ticket.number + 1);

  const std::uint64_t now = now_ns();
  FlightSlot& slot = memory_->slot(ticket.number % entries_);
  store(slot.begun, ticket.number + 1);
  publish_in_order();
  slot.begin_ns = now;
  slot.end_ns = 0;
  slot.outcome = static_cast<std::uint64_t>(FlightOutcome::kRunning);
  slot.sequence = sequence;
  slot.count = op.count;
  slot.iteration = op.iteration ? static_cast<std::uint64_t>(*op.iteration) : load(header.iteration);
  slot.group = static_cast<std::uint16_t>(group);
  slot.operation = static_cast<std::uint8_t>(op.operation);
  slot.op = static_cast<std::uint8_t>(op.op);
  slot.dtype = static_cast<std::uint8_t>(op.dtype);
  slot.traffic = static_cast<std::uint8_t>(op.tag.traffic);
  slot.peer = op.world_peer;
  put(slot.what, op.tag.what);
  put(slot.layer, op.tag.layer);
  put(slot.tensor, op.tag.tensor);
  store(slot.written, ticket.number + 1);

  const std::uint64_t low = collective ? sequence : static_cast<std::uint64_t>(op.world_peer);
  if (collective) store(member.calls, sequence + 1);
  store(header.inside, (collective ? 0 : FlightInside::kPeer) |
                           (std::uint64_t{group + 1} << FlightInside::kGroupShift) |
                           (low & FlightInside::kLow));
  touch(now);
  return ticket;
}

void FlightRecorder::end(const Ticket& ticket, FlightOutcome outcome) noexcept {
  FlightHeader& header = memory_->header();
  const std::uint64_t now = now_ns();
  FlightSlot& slot = memory_->slot(ticket.number % entries_);
  if (load(slot.begun) == ticket.number + 1) {  // else it has been overwritten
    store(slot.end_ns, now);
    store(slot.outcome, static_cast<std::uint64_t>(outcome));
  }
  store(header.inside, 0);
  touch(now);
}

void FlightRecorder::leave(std::size_t group, std::optional<std::uint64_t> from) noexcept {
  FlightGroupSlot& member = memory_->group(group);
  if (load(member.left) != 0) return;
  store(member.left, from.value_or(load(member.calls)) + 1);
  touch(now_ns());
}

FlightRecord FlightRecorder::record() const {
  const std::span<const std::byte> bytes(memory_->data, memory_->bytes);
  return decode_flight_record({bytes, bytes, bytes},
                              directory_.empty() ? "record in memory" : directory_.string());
}

FlightStatus FlightRecorder::status() const {
  const std::span<const std::byte> bytes(memory_->data, kFlightStatusBytes);
  return decode_flight_status({bytes, bytes, bytes},
                              directory_.empty() ? "record in memory" : directory_.string());
}

}  // namespace amaxscope

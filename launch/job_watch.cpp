#include "launch/job_watch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "collectives/flight_reader.hpp"
#include "collectives/flight_text.hpp"
#include "core/error.hpp"
#include "launch/flight_rank.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::chrono::milliseconds kLookEvery{200};
constexpr std::size_t kRanksShown = 8;
constexpr char kEnd = 'e';
constexpr char kTerminated = 't';

// A signal handler has no other way to its object. -1: nobody listens.
std::atomic<int> wake_of_handler{-1};

extern "C" void on_terminate(int) {
  const int descriptor = wake_of_handler.load();
  if (descriptor >= 0) static_cast<void>(!write(descriptor, &kTerminated, 1));
}

std::filesystem::path last_words(const FlightRecorder& flight) {
  return flight.directory() / "last_words.txt";
}

[[noreturn]] void end_as_terminated() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::_Exit(128 + SIGTERM);
}

}  // namespace

JobWatch::JobWatch(std::shared_ptr<FlightRecorder> flight, std::chrono::milliseconds deadline)
    : flight_(std::move(flight)), deadline_(deadline) {
  AMAXSCOPE_CHECK(!flight_->directory().empty(), ErrorCode::kUsage,
                  "a job is watched through flight records in files; this one is in memory");
  // Of an earlier run into the same directory; nobody has last words yet.
  std::error_code ignored;
  if (flight_->world_rank() == 0) std::filesystem::remove(last_words(*flight_), ignored);
  std::array<int, 2> ends{};
  AMAXSCOPE_CHECK(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0, ErrorCode::kIo,
                  "no pipe for the signal that ends the job");
  wake_read_ = ends[0];
  wake_write_ = ends[1];
  thread_ = std::thread([this] { watch(); });
  wake_of_handler = wake_write_;
  std::signal(SIGTERM, on_terminate);
}

JobWatch::~JobWatch() {
  std::signal(SIGTERM, SIG_DFL);
  wake_of_handler = -1;
  static_cast<void>(!write(wake_write_, &kEnd, 1));
  thread_.join();
  close(wake_read_);
  close(wake_write_);
}

void JobWatch::watch() {
  for (;;) {
    pollfd wake{.fd = wake_read_, .events = POLLIN, .revents = 0};
    poll(&wake, 1, static_cast<int>(kLookEvery.count()));
    char what = 0;
    if (read(wake_read_, &what, 1) == 1) {
      if (what == kEnd) return;
      say(who_died());
      end_as_terminated();
    }
    if (waited_in_vain()) std::_Exit(kWaitedInVain);
  }
}

bool JobWatch::waited_in_vain() {
  const FlightStatus own = flight_->status();
  const auto now = std::chrono::steady_clock::now();
  if (!own.inside) {
    wait_.reset();
    return false;
  }
  if (!wait_ || wait_->progress != own.progress) {
    wait_ = Wait{.progress = own.progress, .since = now, .of_the_job = {}, .next_look = now};
    return false;
  }
  // The runtime's own collectives end themselves at the deadline; they come first. Reading everybody's record
  // is not for every wink.
  if (now - wait_->since < deadline_ + deadline_ / 4 + 2 * kLookEvery || now < wait_->next_look) return false;
  wait_->next_look = now + deadline_ / 4;
  const std::optional<std::uint64_t> before = std::exchange(wait_->of_the_job, job_progress());
  if (before != wait_->of_the_job) return false;
  say(fmt::format(
      "nobody gets on; rank {} has waited {:.0f} s:\n{}\nEnding the job. More: amaxscope doctor --flight {}",
      own.world_rank, std::chrono::duration<double>(now - wait_->since).count(), everybody(),
      flight_->directory().string()));
  return true;
}

std::uint64_t JobWatch::job_progress() const {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < flight_->status().world_size; ++rank) {
    try {
      sum += read_flight_status(FlightRecorder::file_of(flight_->directory(), rank)).progress;
    } catch (const Error&) {  // a rank whose record cannot be read: nothing to go by
    }
  }
  return sum;
}

std::string JobWatch::everybody(bool only_the_dead) const {
  std::vector<std::string> lines;
  const auto now = std::chrono::system_clock::now();
  for (int rank = 0; rank < flight_->status().world_size; ++rank) {
    const FlightRank found = read_rank(flight_->directory(), rank);
    if (only_the_dead && !has_died(found)) continue;
    lines.push_back(
        fmt::format("  rank {}: {}", rank, found.record ? whereabouts(*found.record, now) : found.trouble));
  }
  const std::size_t all = lines.size();
  if (all > kRanksShown) {
    lines.resize(kRanksShown);
    lines.push_back(fmt::format("  and {} more", all - kRanksShown));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string JobWatch::who_died() const {
  const std::string dead = everybody(/*only_the_dead=*/true);
  return fmt::format("the job is being ended{}\nMore: amaxscope doctor --flight {}",
                     dead.empty() ? " from outside; its ranks are alive:\n" + everybody()
                                  : ", because of a rank that has died:\n" + dead,
                     flight_->directory().string());
}

bool JobWatch::say(const std::string& text) const {
  const int file = open(last_words(*flight_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return false;
  // Where the file cannot be written, everybody speaks: better often than not at all.
  const std::string line = fmt::format("amaxscope: {}\n", text);
  if (file >= 0) {
    static_cast<void>(!write(file, line.data(), line.size()));
    close(file);
  }
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  return true;
}

}  // namespace amaxscope::launch

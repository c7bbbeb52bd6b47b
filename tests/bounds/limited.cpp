#include "tests/bounds/limited.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <stdexcept>

#include "core/error.hpp"

namespace amaxscope::test {

namespace {

std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void limit(int what, std::size_t most) {
  const rlimit bounds{most, most};
  if (setrlimit(what, &bounds) != 0) _exit(99);
}

std::string answer_of(const std::function<std::string()>& reader) {
  try {
    return reader();
  } catch (const Error& error) {
    const bool expected = error.code() == ErrorCode::kInput || error.code() == ErrorCode::kConfig ||
                          error.code() == ErrorCode::kTensor || error.code() == ErrorCode::kIo;
    return fmt::format("{}: {}", expected ? "refused" : "error", error.what());
  } catch (const std::bad_alloc&) {
    return "error: out of memory";
  } catch (const std::exception& error) {
    return fmt::format("error: {}", error.what());
  }
}

[[noreturn]] void child(const std::function<std::string()>& reader, const Limits& limits, int out) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limit(RLIMIT_AS, mapped_bytes() + (limits.mebibytes << 20U));
#endif
  limit(RLIMIT_CPU, static_cast<std::size_t>(limits.seconds));
  limit(RLIMIT_CORE, 0);
  alarm(static_cast<unsigned>(3 * limits.seconds));
  const std::string answer = answer_of(reader);
  for (std::size_t done = 0; done < answer.size();) {
    const ssize_t written = write(out, answer.data() + done, answer.size() - done);
    if (written <= 0) _exit(98);
    done += static_cast<std::size_t>(written);
  }
  _exit(0);
}

}  // namespace

Limited limited(const std::function<std::string()>& reader, const Limits& limits) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("no process");
  if (process == 0) {
    close(ends[0]);
    child(reader, limits, ends[1]);
  }
  close(ends[1]);
  Limited result;
  std::array<char, 65536> block{};
  for (ssize_t got = 0; (got = read(ends[0], block.data(), block.size())) > 0;)
    result.said.append(block.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  rusage used{};
  if (wait4(process, &status, 0, &used) != process) throw std::runtime_error("a process was lost");
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  result.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  result.peak_mebibytes = static_cast<std::size_t>(used.ru_maxrss) >> 10U;
  if (WIFSIGNALED(status)) {
    result.said = WTERMSIG(status) == SIGALRM ? "waited without end"
                                              : fmt::format("killed by signal {}", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    result.said = fmt::format("ended with status {}", WEXITSTATUS(status));
  }
  return result;
}

}  // namespace amaxscope::test

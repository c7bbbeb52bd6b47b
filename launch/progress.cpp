#include "launch/progress.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "launch/terminal.hpp"

namespace amaxscope::launch {

namespace {
constexpr std::int64_t kLines = 10;
constexpr std::int64_t kBarWidth = 30;

}  // namespace

Progress::Progress(std::FILE* lines, std::int64_t steps)
    : bar_(is_terminal(stderr)),
      stream_(bar_ ? stderr : lines),
      steps_(steps),
      start_(std::chrono::steady_clock::now()) {}

void Progress::step_done(std::int64_t step, double loss, double gradient_norm) {
  const std::int64_t done = step + 1;
  const bool last = done == steps_;
  const std::int64_t every = std::max<std::int64_t>(1, steps_ / kLines);
  if (!bar_ && step % every != 0 && !last) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string text =
      fmt::format("step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  {:.1f} s", done,
                  fmt::formatted_size("{}", steps_), steps_, loss, gradient_norm, seconds);
  if (bar_) {
    const std::int64_t filled = kBarWidth * done / steps_;
    fmt::print(stream_, "\r[{:#<{}}{:.<{}}] {}{}", "", filled, "", kBarWidth - filled, text,
               last ? "\n" : "");
  } else {
    fmt::print(stream_, "{}\n", text);
  }
  std::fflush(stream_);
}

}  // namespace amaxscope::launch

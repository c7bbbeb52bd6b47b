#include "launch/ticker.hpp"

#include <fmt/format.h>

#include "launch/terminal.hpp"

namespace amaxscope::launch {

Ticker::Ticker(std::FILE* stream, std::string what, std::int64_t total)
    : stream_(stream), what_(std::move(what)), total_(total), shows_(is_terminal(stream)) {}

Ticker::~Ticker() {
  if (shows_ && done_ > 0) {
    std::fputs("\r\x1b[K", stream_);
    std::fflush(stream_);
  }
}

void Ticker::advance() {
  ++done_;
  if (!shows_) return;
  std::fputs(fmt::format("\r{} {}/{}\x1b[K", what_, done_, total_).c_str(), stream_);
  std::fflush(stream_);
}

}  // namespace amaxscope::launch

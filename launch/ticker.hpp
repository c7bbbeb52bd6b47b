// How a command that goes through many things shows that it is alive: a count on a terminal, nothing else.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace amaxscope::launch {

class Ticker {
 public:
  /// Shows "what done/total" on the stream when that is a terminal (or AMAXSCOPE_TERMINAL=1 says that the
  /// launcher hides one).
  Ticker(std::FILE* stream, std::string what, std::int64_t total);
  ~Ticker();  ///< wipes the line
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  void advance();

 private:
  std::FILE* stream_;
  std::string what_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool shows_;
};

}  // namespace amaxscope::launch

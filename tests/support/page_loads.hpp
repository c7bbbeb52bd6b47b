// Counts how often memory is read, as a cache of a few pages sees it: no clock, the same on every machine.
#pragma once

#include <cstddef>

namespace amaxscope::testing {

/// Memory whose pages can be read only while they are in a pretended cache: the first read of one that is not
/// takes it in, in place of the one that came first, and is counted. One of these at a time, read by one
/// thread; it handles SIGSEGV while it lives. Prefetching is not reading.
class PageLoads {
 public:
  static constexpr std::size_t kPage = 4096;

  /// bytes: rounded up to whole pages, zeroed.
  PageLoads(std::size_t bytes, std::size_t cached_bytes);
  ~PageLoads();
  PageLoads(const PageLoads&) = delete;
  PageLoads& operator=(const PageLoads&) = delete;

  [[nodiscard]] void* data() const noexcept;
  /// May be read and written, and nothing is counted.
  void open();
  /// Counts from 0, with an empty cache; reading only.
  void start();
  /// Bytes read since start(), in whole pages.
  [[nodiscard]] std::size_t bytes_read() const noexcept;
};

}  // namespace amaxscope::testing

// Feeds a reader its seeds, every beginning of them, and changes of them that a seed of the random numbers
// fixes, so that any compiler's build and any sanitizer can run it, and a failure comes back.
// usage: fuzz_NAME [CHANGES [FILES...]]     CHANGES for each seed, default 400; FILES are read after them.
// An input that ends the program is left as the file it names before it is read.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include "tests/fuzz/target.hpp"

namespace {

using amaxscope::fuzz::read;

/// What readers have a special case for.
constexpr std::array<std::string_view, 24> kWords = {std::string_view("\0", 1),
                                                     "\n",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     "\"",
                                                     ":",
                                                     ",",
                                                     "\\",
                                                     "-1",
                                                     "0",
                                                     "1e400",
                                                     "9223372036854775807",
                                                     "18446744073709551616",
                                                     "NaN",
                                                     "null",
                                                     "true",
                                                     "\xff\xff\xff\xff",
                                                     "\xc3\x28",
                                                     "&a",
                                                     "*a",
                                                     "..",
                                                     "(((((((((("};

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string changed(std::string text) {
    const int changes = 1 + static_cast<int>(below(4));
    for (int change = 0; change < changes; ++change) change_once(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  void change_once(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(text.size() - at, 1 + below(std::size_t{1} << below(10)));
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, kWords.at(below(kWords.size())));
        break;
      case 4:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
      case 5:
        text.replace(at, length, kWords.at(below(kWords.size())));
        break;
      case 6: {
        const std::string& other = seeds_.at(below(seeds_.size()));
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
    }
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{20261203};
};

/// The input that is being read, in memory that a dying process can still write out.
class Current {
 public:
  void set(std::string_view bytes) {
    size_ = std::min(bytes.size(), bytes_.size());
    std::copy_n(bytes.begin(), size_, bytes_.begin());
  }
  /// Async-signal-safe.
  void leave() const noexcept {
    char path[] = "/tmp/amaxscope_fuzz_XXXXXX";
    const int file = ::mkstemp(path);
    if (file < 0) return;
    const char* from = bytes_.data();
    for (std::size_t left = size_; left > 0;) {
      const ssize_t written = ::write(file, from, left);
      if (written <= 0) break;
      from += written;
      left -= static_cast<std::size_t>(written);
    }
    ::close(file);
    constexpr std::string_view kSaid = "the input that ended this is in ";
    [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
    ignored = ::write(STDERR_FILENO, path, sizeof path - 1);
    ignored = ::write(STDERR_FILENO, "\n", 1);
  }

 private:
  std::array<char, 1 << 20> bytes_{};
  std::size_t size_ = 0;
};

Current& current() {
  static Current input;
  return input;
}

void on_signal(int number) {
  current().leave();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void read_and_remember(std::string_view bytes) {
  current().set(bytes);
  read(bytes);
}

}  // namespace

int main(int count, char** arguments) {
  const int changes = count > 1 ? std::atoi(arguments[1]) : 400;
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGTERM, SIGXCPU})
    std::signal(number, on_signal);
  const std::vector<std::string> seeds = amaxscope::fuzz::seeds();
  std::uint64_t inputs = 0;
  Mutator mutator(seeds);
  for (const std::string& seed : seeds) {
    read_and_remember(seed);
    // Every beginning of a short one; of a long one as many.
    const std::size_t step = 1 + seed.size() / 400;
    for (std::size_t size = 0; size < seed.size(); size += step, ++inputs)
      read_and_remember(std::string_view(seed).substr(0, size));
    for (int change = 0; change < changes; ++change, ++inputs) read_and_remember(mutator.changed(seed));
  }
  for (int index = 2; index < count; ++index, ++inputs)
    read_and_remember(amaxscope::fuzz::bytes_of(arguments[index]));
  fmt::print("{} seeds, {} inputs\n", seeds.size(), inputs + seeds.size());
  return seeds.empty() ? 1 : 0;
}

// Errors and warnings about a configuration, each with its place, collected so that all are shown at once.
// A value type, used by one thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/log.hpp"

namespace amaxscope {

/// 1-based place in the YAML; line 0: no place. Columns count characters, not bytes.
struct SourcePosition {
  int line = 0;
  int column = 0;
  friend bool operator==(const SourcePosition&, const SourcePosition&) = default;
};

class Diagnostics {
 public:
  struct Entry {
    bool is_error = true;
    SourcePosition position;
    std::string message;
  };
  /// source: the file's name as the user gave it; "config" for text from elsewhere.
  explicit Diagnostics(std::string source) : source_(std::move(source)) {}

  /// The same message about the same place is kept once (an anchored value is seen at every alias).
  void error(SourcePosition position, std::string message);
  void warn(SourcePosition position, std::string message);
  /// An error that explains away everything said later about its place: a scalar that could not be read at
  /// all should not also be reported as a value of the wrong type.
  void fault(SourcePosition position, std::string message);

  [[nodiscard]] const std::string& source() const noexcept { return source_; }
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] bool has_errors() const noexcept;
  /// "config.yaml:12:7: unknown key ..."
  [[nodiscard]] std::string format(const Entry& entry) const;
  /// Throws Error(kConfig) with every error, one a line in the order of the file, if there is any.
  void throw_if_errors() const;

 private:
  void add(Entry entry);

  std::string source_;
  std::vector<Entry> entries_;
  std::set<std::string> seen_;
  std::set<std::pair<int, int>> faults_;
};

/// `; did you mean "freq"?` when a candidate is close to the word, else `; allowed: a, b, c`.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
/// The n candidates closest to the word, closest first.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates,
                                 std::size_t n);
/// The word in double quotes for a message: control characters escaped, cut at 80 bytes.
std::string in_quotes(std::string_view word);

}  // namespace amaxscope

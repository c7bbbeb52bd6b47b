// Which layers a section of the YAML is about (config.md section 2). Read-only after construction.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/value.hpp"

namespace amaxscope {

/// A pattern with the meaning of Python's re.search, with match and depth limits (PCRE2).
class Pattern {
 public:
  /// Throws Error(kConfig): what is wrong, and at which offset.
  explicit Pattern(std::string text);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Whether a match starts anywhere in the subject. Throws Error(kConfig) naming the pattern at a limit.
  [[nodiscard]] bool found_in(std::string_view subject) const;
  /// Whether it is found in the subject only so that the match ends inside a number: "layer.1" in "layer.10".
  [[nodiscard]] bool cuts_number_in(std::string_view subject) const;

 private:
  struct Compiled;
  struct Match {
    std::size_t begin;
    std::size_t end;
  };
  /// The leftmost match that starts at `from` or after it.
  [[nodiscard]] std::optional<Match> match(std::string_view subject, std::size_t from) const;
  std::string text_;
  std::unique_ptr<Compiled> compiled_;
};

class LayerSelector {
 public:
  /// From the value of `layers`; errors and warnings go to the diagnostics.
  static std::unique_ptr<LayerSelector> parse(const ConfigValue& layers, Diagnostics& diagnostics);
  virtual ~LayerSelector() = default;
  /// number: what the layer was registered with; none: the single integer in its name. Throws Error(kConfig)
  /// for layer_numbers when the name holds several integers and no number was registered.
  [[nodiscard]] virtual bool matches(std::string_view name, std::optional<int> number) const = 0;
  /// The regular expression that decides; null when something else does.
  [[nodiscard]] virtual const Pattern* deciding_pattern() const noexcept = 0;
};

}  // namespace amaxscope

// A headless Chromium that a test leads through its debugging pipe. One page at a time; not thread safe;
// every call blocks until the browser answers, at most 30 seconds.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace amaxscope::report::test {

class Browser {
 public:
  /// The program of AMAXSCOPE_BROWSER, or the first known name on PATH.
  static std::optional<std::string> installed();

  explicit Browser(const std::string& program);
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;
  ~Browser();

  /// Opens a file and waits until it has loaded.
  void open(const std::filesystem::path& file);
  /// The value of an expression in the page; what it promises, if it is a promise. Throws when it throws.
  nlohmann::json evaluate(const std::string& expression);
  void click(double x, double y);
  void press(const std::string& key);
  nlohmann::json call(const std::string& method, const nlohmann::json& parameters = nlohmann::json::object());

  /// Errors on the console, uncaught exceptions and violations of the page's policy since the last open().
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
  /// Addresses that the page asked for since the last open(), its own file too.
  [[nodiscard]] const std::vector<std::string>& requests() const { return requests_; }

 private:
  nlohmann::json next_message();
  void note(const nlohmann::json& message);

  std::filesystem::path profile_;
  pid_t process_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  std::string session_;
  std::string received_;
  std::vector<std::string> complaints_;
  std::vector<std::string> requests_;
};

}  // namespace amaxscope::report::test

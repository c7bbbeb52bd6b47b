#include "core/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <vector>

#include "core/append_descriptor.hpp"
#include "core/error.hpp"
#include "core/terminal_text.hpp"

namespace amaxscope {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// %* in a pattern: the level as Python's logging writes it, which the readers of these files expect.
class LevelName : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const auto name = spdlog::level::to_string_view(message.level);
    for (const char letter : std::string_view(name.data(), name.size())) {
      out.push_back(letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter);
    }
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<LevelName>();
  }
};

/// Whether an earlier process was killed while it wrote a line.
bool ends_in_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  return file.good() && last != '\n';
}

/// spdlog's own file sink follows links.
class AppendSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit AppendSink(const std::filesystem::path& path) : descriptor_(open_to_append(path)) {
    if (ends_in_line(path)) static_cast<void>(!::write(descriptor_, "\n", 1));
  }
  ~AppendSink() override { ::close(descriptor_); }
  AppendSink(const AppendSink&) = delete;
  AppendSink& operator=(const AppendSink&) = delete;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t written = ::write(descriptor_, line.data() + done, line.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw spdlog::spdlog_ex("a message cannot be written", errno);
      done += static_cast<std::size_t>(written);
    }
  }
  void flush_() override {}  // nothing is kept back

 private:
  int descriptor_;
};

}  // namespace

LogLevel parse_log_level(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevels = {{{"trace", LogLevel::kTrace},
                                                                             {"debug", LogLevel::kDebug},
                                                                             {"info", LogLevel::kInfo},
                                                                             {"warn", LogLevel::kWarn},
                                                                             {"error", LogLevel::kError}}};
  for (const auto& [name, level] : kLevels) {
    if (name == text) return level;
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("log level \"{}\" is not one of trace, debug, info, warn, error", text));
}

struct Log::State {
  explicit State(const Options& chosen) : options(chosen), logger("amaxscope") {
    auto console = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    console->set_level(to_spdlog(options.console_level));
    console->set_pattern("amaxscope: " + options.prefix + "%l: %v");
    logger.sinks().push_back(std::move(console));
    logger.set_level(spdlog::level::trace);
    logger.flush_on(spdlog::level::trace);
    logger.set_error_handler([](const std::string&) {});  // a full disk must not end a training run
  }
  Options options;
  spdlog::logger logger;
  std::vector<spdlog::sink_ptr> files;
};

Log::Log() : Log(Options{}) {}
Log::Log(Options options) : state_(std::make_unique<State>(options)) {}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::add_file(const std::filesystem::path& path) {
  auto file = std::make_shared<AppendSink>(path);
  file->set_level(to_spdlog(state_->options.file_level));
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('*').set_pattern("%Y-%m-%d %H:%M:%S,%e - %* - %v");
  file->set_formatter(std::move(formatter));
  state_->files.push_back(file);
  state_->logger.sinks().push_back(std::move(file));
}

void Log::write(LogLevel level, std::string_view message) noexcept {
  try {
    const std::string text = terminal_text(message);
    state_->logger.log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {  // NOLINT(bugprone-empty-catch): see the class comment
  }
}

bool Log::has_files() const noexcept { return !state_->files.empty(); }

void Log::write_to_files(LogLevel level, std::string_view message) noexcept {
  const spdlog::level::level_enum spdlog_level = to_spdlog(level);
  for (const spdlog::sink_ptr& file : state_->files) {
    try {
      if (!file->should_log(spdlog_level)) continue;
      const std::string text = terminal_text(message);
      file->log({state_->logger.name(), spdlog_level, spdlog::string_view_t(text.data(), text.size())});
    } catch (...) {  // NOLINT(bugprone-empty-catch): see the class comment
    }
  }
}

}  // namespace amaxscope

#include "tests/report/browser.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace amaxscope::report::test {

namespace {

using nlohmann::json;

constexpr int kPatienceMs = 30'000;

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    // High numbers, so that 3 and 4 are free for the browser.
    if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    read = ::fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    write = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    ::close(ends[0]);
    ::close(ends[1]);
  }
};

}  // namespace

std::optional<std::string> Browser::installed() {
  if (const char* const given = std::getenv("AMAXSCOPE_BROWSER"); given != nullptr && *given != '\0')
    return given;
  const char* const path = std::getenv("PATH");
  for (const char* name : {"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}) {
    std::istringstream folders(path != nullptr ? path : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string program = folder + "/" + name;
      if (::access(program.c_str(), X_OK) == 0) return program;
    }
  }
  return std::nullopt;
}

Browser::Browser(const std::string& program) {
  std::string pattern = (std::filesystem::temp_directory_path() / "amaxscope_browser_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  profile_ = pattern;
  const Pipe commands;
  const Pipe answers;
  const std::string profile = "--user-data-dir=" + pattern;
  // A root user, as in a container, has no sandbox; the pages are our own.
  const std::array<const char*, 9> arguments = {program.c_str(),
                                                "--headless",
                                                "--no-sandbox",
                                                "--disable-gpu",
                                                "--disable-dev-shm-usage",
                                                "--no-first-run",
                                                "--remote-debugging-pipe",
                                                profile.c_str(),
                                                nullptr};
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("no process for the browser");
  if (process_ == 0) {
    ::dup2(commands.read, 3);
    ::dup2(answers.write, 4);
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) ::dup2(nowhere, stream);
    ::execv(program.c_str(), const_cast<char* const*>(arguments.data()));
    ::_exit(127);
  }
  ::close(commands.read);
  ::close(answers.write);
  to_ = commands.write;
  from_ = answers.read;
  ::signal(SIGPIPE, SIG_IGN);
  const json target = call("Target.createTarget", {{"url", "about:blank"}});
  session_ =
      call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}}).at("sessionId");
  for (const char* domain : {"Page", "Runtime", "Log", "Network"}) call(fmt::format("{}.enable", domain));
  call("Emulation.setDeviceMetricsOverride",
       {{"width", 1400}, {"height", 1000}, {"deviceScaleFactor", 1}, {"mobile", false}});
}

Browser::~Browser() {
  ::close(to_);
  ::close(from_);
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  // Its helpers may still write there for a moment; what they leave is in the temporary directory.
  std::error_code ignored;
  std::filesystem::remove_all(profile_, ignored);
}

json Browser::next_message() {
  while (true) {
    if (const std::size_t end = received_.find('\0'); end != std::string::npos) {
      const json message = json::parse(received_.substr(0, end));
      received_.erase(0, end + 1);
      return message;
    }
    pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, kPatienceMs) <= 0) throw std::runtime_error("the browser does not answer");
    std::array<char, 1U << 16> buffer;
    const ssize_t got = ::read(from_, buffer.data(), buffer.size());
    if (got <= 0) throw std::runtime_error("the browser has ended");
    received_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void Browser::note(const json& message) {
  const std::string method = message.value("method", "");
  const json parameters = message.value("params", json::object());
  if (method == "Network.requestWillBeSent") requests_.push_back(parameters.at("request").at("url"));
  if (method == "Runtime.exceptionThrown") complaints_.push_back(parameters.dump());
  if (method == "Runtime.consoleAPICalled" && parameters.at("type") == "error")
    complaints_.push_back(parameters.dump());
  if (method == "Log.entryAdded" && parameters.at("entry").at("level") == "error")
    complaints_.push_back(parameters.dump());
}

json Browser::call(const std::string& method, const json& parameters) {
  json request = {{"id", ++last_id_}, {"method", method}, {"params", parameters}};
  if (!session_.empty()) request["sessionId"] = session_;
  const std::string text = request.dump() + '\0';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(to_, text.data() + done, text.size() - done);
    if (written <= 0) throw std::runtime_error("the browser has ended");
    done += static_cast<std::size_t>(written);
  }
  while (true) {
    const json message = next_message();
    if (!message.contains("id")) {
      note(message);
    } else if (message.at("id") == last_id_) {
      if (message.contains("error")) throw std::runtime_error(method + ": " + message.at("error").dump());
      return message.at("result");
    }
  }
}

void Browser::open(const std::filesystem::path& file) {
  call("Page.navigate", {{"url", "about:blank"}});
  complaints_.clear();
  requests_.clear();
  call("Page.navigate", {{"url", "file://" + file.string()}});
  // Asked of the page itself: an event that says "loaded" may be the blank page's, come late.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (evaluate("location.href !== 'about:blank' && document.readyState === 'complete'") != true) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the page does not load");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

json Browser::evaluate(const std::string& expression) {
  const json result = call(
      "Runtime.evaluate",
      {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}, {"userGesture", true}});
  if (result.contains("exceptionDetails")) throw std::runtime_error(result.at("exceptionDetails").dump());
  return result.at("result").value("value", json());
}

void Browser::click(double x, double y) {
  for (const char* type : {"mouseMoved", "mousePressed", "mouseReleased"}) {
    call("Input.dispatchMouseEvent",
         {{"type", type}, {"x", x}, {"y", y}, {"button", "left"}, {"clickCount", 1}});
  }
}

void Browser::press(const std::string& key) {
  for (const char* type : {"keyDown", "keyUp"})
    call("Input.dispatchKeyEvent", {{"type", type}, {"key", key}});
}

}  // namespace amaxscope::report::test

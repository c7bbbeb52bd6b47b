#include "tests/launch/run_program.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace amaxscope::test {

namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Output goes to files: no pipe can fill up and block the program.
class Streams {
 public:
  explicit Streams(const std::string& standard_input) {
    std::string pattern = (std::filesystem::temp_directory_path() / "amaxscope_run_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
    std::ofstream(folder_ / "in", std::ios::binary) << standard_input;
  }
  ~Streams() { std::filesystem::remove_all(folder_); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void attach() const {
    attach(0, "in", O_RDONLY);
    attach(1, "out", O_WRONLY | O_CREAT | O_APPEND);
    attach(2, "err", O_WRONLY | O_CREAT | O_APPEND);
  }
  [[nodiscard]] std::string out() const { return read_all(folder_ / "out"); }
  [[nodiscard]] std::string err() const { return read_all(folder_ / "err"); }

 private:
  void attach(int target, const char* name, int flags) const {
    const int file = open((folder_ / name).c_str(), flags, 0600);
    if (file < 0 || dup2(file, target) < 0) _exit(126);
    close(file);
  }
  std::filesystem::path folder_;
};

[[noreturn]] void become(const std::vector<std::string>& arguments, const ProgramOptions& options,
                         const Streams& streams) {
  setpgid(0, 0);
  streams.attach();
  for (const auto& [name, value] : options.environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  const Streams streams(options.standard_input);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) become(arguments, options, streams);

  ProgramResult result;
  int wait_status = 0;
  bool killed = false;
  while (waitpid(child, &wait_status, WNOHANG) == 0) {
    if (!killed && std::chrono::steady_clock::now() - start > options.deadline) {
      kill(-child, SIGKILL);
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  result.status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.out = streams.out();
  result.err = streams.err();
  return result;
}

}  // namespace amaxscope::test

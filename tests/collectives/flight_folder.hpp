// A directory that the ranks of a test share, gone with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "collectives/exchange.hpp"

namespace amaxscope::testing {

class FlightFolder {
 public:
  /// Collective.
  explicit FlightFolder(Communicator& world) : owner_(world.rank() == 0) {
    std::string path;
    if (owner_) {
      path = (std::filesystem::temp_directory_path() / "amaxscope_flight_XXXXXX").string();
      if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary directory");
    }
    path_ = broadcast_text(world, path, 0, {.traffic = Traffic::kTrainer, .what = "folder"});
  }
  ~FlightFolder() {
    std::error_code ignored;
    if (owner_) std::filesystem::remove_all(path_, ignored);
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  bool owner_;
  std::filesystem::path path_;
};

}  // namespace amaxscope::testing

// A log directory for a scene on several ranks, and reading what is in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/exchange.hpp"

namespace amaxscope::testing {

/// Empty, the same on all ranks. Collective.
inline std::filesystem::path fresh_directory(Communicator& world, const std::string& name) {
  std::filesystem::path dir;
  if (world.rank() == 0) {
    dir = std::filesystem::temp_directory_path() /
          ("amaxscope_" + name + "_" + std::to_string(::getpid()) + "_" + std::to_string(world.size()));
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
  }
  return broadcast_text(world, dir.string(), 0, {.what = "test directory"});
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A file of JSON lines; empty when there is none.
inline std::vector<nlohmann::json> lines_of_json(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// The names of the files below a folder, sorted.
inline std::vector<std::string> names_below(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace amaxscope::testing

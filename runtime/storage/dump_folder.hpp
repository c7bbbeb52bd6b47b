// The dump folder of one rank: its files, its manifest, its budget. One thread. Blocks on the disk; throws
// nothing for what goes wrong there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "runtime/sinks/append_file.hpp"
#include "runtime/storage/dump_file.hpp"
#include "runtime/storage/safetensors.hpp"

namespace amaxscope {

class DumpFolder {
 public:
  struct Terms {
    std::string who;                     ///< whose folder it is, for messages
    std::optional<std::int64_t> budget;  ///< bytes of tensors, earlier runs in the same folder included
    std::string budget_name;             ///< what people set it with
  };
  /// folder: .../tensor_dumps/rank_R, made with the first file. warn: a message to people.
  DumpFolder(std::filesystem::path folder, Terms terms, std::function<void(const std::string&)> warn);
  /// Records how much was skipped in all, when the manifest has not got every one.
  ~DumpFolder();
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;

  /// Writes a file and its line of the manifest, unless an earlier run has it already, the budget is used up
  /// or the disk refuses; of the last two the manifest and, the first time, the people are told.
  void write(const DumpMetadata& dump, std::span<const NamedTensor> tensors);

  /// Skipped tensors with a line of their own; more are only counted, so that a manifest stays small.
  static constexpr std::int64_t kSkippedLines = 1000;

 private:
  void load(std::int64_t first_iteration);
  void record(const DumpMetadata& dump, const std::string& file, std::uint64_t bytes, std::string_view status,
              std::string_view why);
  void append(const std::string& line);
  void skip(const DumpMetadata& dump, const std::string& file, std::uint64_t bytes);
  void warn_once(bool& said, const std::string& message);

  std::filesystem::path folder_;
  Terms terms_;
  std::function<void(const std::string&)> warn_;
  bool loaded_ = false;
  std::optional<AppendFile> manifest_;
  std::set<std::string> written_before_;  ///< by an earlier run, of this one's iterations
  std::set<std::string> skipped_before_;  ///< the same of what did not fit
  std::uint64_t bytes_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t failed_ = 0;
  bool said_budget_ = false;
  bool said_failure_ = false;
  bool said_manifest_ = false;
};

}  // namespace amaxscope

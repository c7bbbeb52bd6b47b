// Byte-level training text: files read as bytes, batches drawn from them deterministically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace amaxscope::megatron {

struct Batch {
  std::vector<std::int32_t> inputs;   ///< [S*B] in [s, b] order
  std::vector<std::int32_t> targets;  ///< the next byte of each
};

class TextData {
 public:
  /// Throws Error(kInput) naming the file and the reason: missing, a directory, not a regular file, not
  /// readable, empty; and when all together have fewer than sequence + 1 bytes.
  static TextData from_files(const std::vector<std::filesystem::path>& files, std::int64_t sequence = 1);
  explicit TextData(std::string bytes) : bytes_(std::move(bytes)) {}
  /// Licence texts that a Debian or Ubuntu system has: the regular files of the directory, without links, in
  /// sorted order. Throws Error(kInput) when there are none.
  static std::vector<std::filesystem::path> default_files(
      const std::filesystem::path& directory = "/usr/share/common-licenses");

  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// Start positions are a pure function of (seed, step, micro-batch, dp rank, sequence in the batch). Throws
  /// Error(kInput) when the text has fewer than sequence + 1 bytes.
  [[nodiscard]] Batch batch(std::uint64_t seed, std::int64_t step, int microbatch, int dp_rank,
                            std::int64_t sequence, std::int64_t batch) const;

 private:
  std::string bytes_;
};

}  // namespace amaxscope::megatron

#include "megatron/text_data.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/error.hpp"
#include "megatron/counter_hash.hpp"

namespace amaxscope::megatron {

namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  AMAXSCOPE_CHECK(status.type() != fs::file_type::not_found, ErrorCode::kInput, "{}: no such file",
                  path.string());
  AMAXSCOPE_CHECK(status.type() != fs::file_type::none, ErrorCode::kInput, "{}: cannot be read: {}",
                  path.string(), failure.message());
  AMAXSCOPE_CHECK(status.type() != fs::file_type::directory, ErrorCode::kInput,
                  "{}: is a directory; give the files in it", path.string());
  // A pipe or a device gives its bytes to one reader only, and every rank reads the text.
  AMAXSCOPE_CHECK(status.type() == fs::file_type::regular, ErrorCode::kInput, "{}: is not a regular file",
                  path.string());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  AMAXSCOPE_CHECK(file.is_open(), ErrorCode::kInput, "{}: cannot be read: {}", path.string(),
                  std::strerror(errno));
  std::string bytes;
  std::array<char, 1 << 16> chunk{};
  do {
    file.read(chunk.data(), chunk.size());
    bytes.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  AMAXSCOPE_CHECK(!file.bad(), ErrorCode::kInput, "{}: cannot be read: {}", path.string(),
                  std::strerror(errno));
  AMAXSCOPE_CHECK(!bytes.empty(), ErrorCode::kInput, "{}: is empty", path.string());
  return bytes;
}

/// A number in [0, count) from a hash, by the high half of the product.
std::uint64_t below(std::uint64_t count, std::uint64_t hash) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(hash) * count) >> 64);
}

void require_length(std::size_t bytes, std::int64_t sequence) {
  AMAXSCOPE_CHECK(static_cast<std::int64_t>(bytes) > sequence, ErrorCode::kInput,
                  "the text has {} bytes; a sequence of {} and its targets need {}", bytes, sequence,
                  sequence + 1);
}

}  // namespace

TextData TextData::from_files(const std::vector<fs::path>& files, std::int64_t sequence) {
  AMAXSCOPE_CHECK(!files.empty(), ErrorCode::kInput, "no text file was given");
  std::string bytes;
  for (const fs::path& file : files) bytes += read_file(file);
  require_length(bytes.size(), sequence);
  return TextData(std::move(bytes));
}

std::vector<fs::path> TextData::default_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code failure;
  // A link names a text that is there under its own name ("GPL" is "GPL-3") and would count it twice.
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->symlink_status(failure).type() == fs::file_type::regular && entry->file_size(failure) > 0) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  AMAXSCOPE_CHECK(!files.empty(), ErrorCode::kInput,
                  "{}: no text file to train on{}{}; name files of your own", directory.string(),
                  failure ? ": " : "", failure ? failure.message() : "");
  return files;
}

Batch TextData::batch(std::uint64_t seed, std::int64_t step, int microbatch, int dp_rank,
                      std::int64_t sequence, std::int64_t batch) const {
  AMAXSCOPE_CHECK(sequence >= 1 && batch >= 1, ErrorCode::kUsage,
                  "a batch of {} sequences of {} bytes; both must be 1 or more", batch, sequence);
  require_length(bytes_.size(), sequence);
  const std::uint64_t starts = bytes_.size() - static_cast<std::size_t>(sequence);
  const auto count = static_cast<std::size_t>(batch);
  const auto length = static_cast<std::size_t>(sequence);
  Batch result{std::vector<std::int32_t>(length * count), std::vector<std::int32_t>(length * count)};
  for (std::size_t b = 0; b < count; ++b) {
    const std::size_t start = below(starts, hash_words(seed, step, microbatch, dp_rank, b));
    for (std::size_t s = 0; s < length; ++s) {
      result.inputs[s * count + b] = static_cast<unsigned char>(bytes_[start + s]);
      result.targets[s * count + b] = static_cast<unsigned char>(bytes_[start + s + 1]);
    }
  }
  return result;
}

}  // namespace amaxscope::megatron

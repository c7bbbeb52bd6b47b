#include "report/line_reader.hpp"

#include <system_error>
#include <utility>

namespace amaxscope::report {

namespace {

constexpr std::size_t kReadBytes = 1U << 16;

}  // namespace

bool LineReader::open() {
  if (file_ != nullptr) return true;
  std::error_code unknown;
  if (!std::filesystem::exists(path_, unknown)) return false;
  file_ = std::make_unique<InputFile>(path_);
  return true;
}

bool LineReader::fill() {
  buffer_.erase(0, at_);
  searched_ -= at_;
  at_ = 0;
  const std::size_t had = buffer_.size();
  buffer_.resize(had + kReadBytes);
  const std::size_t got = file_->read_some(position_, {buffer_.data() + had, kReadBytes});
  buffer_.resize(had + got);
  position_ += got;
  return got > 0;
}

std::optional<std::string> LineReader::next(bool& whole) {
  while (!gave_up_) {
    const std::size_t newline = buffer_.find('\n', searched_);
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(at_, newline - at_);
      at_ = searched_ = newline + 1;
      thrown_away_ = 0;
      whole = !std::exchange(too_long_, false) && line.size() <= kLongestLine;
      if (!whole) line.clear();
      return line;
    }
    searched_ = buffer_.size();
    if (buffer_.size() - at_ > kLongestLine) {
      too_long_ = true;
      thrown_away_ += buffer_.size() - at_;
      at_ = buffer_.size();
      gave_up_ = thrown_away_ > kMostWithoutEnd;
    }
    if (!fill()) return std::nullopt;
  }
  return std::nullopt;
}

void LineReader::drop_rest() noexcept {
  buffer_.clear();
  at_ = searched_ = 0;
  too_long_ = false;
  thrown_away_ = 0;
}

}  // namespace amaxscope::report

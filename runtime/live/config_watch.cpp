#include "runtime/live/config_watch.hpp"

#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope {

// The file may have been edited since it was read at the start: no stamp is known to be of that text.
ConfigWatch::ConfigWatch(std::filesystem::path path, std::string text)
    : path_(std::move(path)), text_(std::move(text)) {}

ConfigWatch::Stamp ConfigWatch::stamp() const {
  std::error_code size_error;
  std::error_code time_error;
  Stamp now;
  now.size = std::filesystem::file_size(path_, size_error);
  now.time = std::filesystem::last_write_time(path_, time_error);
  now.present = !size_error && !time_error;
  return now.present ? now : Stamp{};
}

std::optional<ConfigWatch::News> ConfigWatch::look() {
  const Stamp now = stamp();
  const bool settled = now == std::exchange(last_, now);
  if (!settled || now == told_) return std::nullopt;
  told_ = now;
  News news;
  try {
    news = {true, read_config_file(path_)};
  } catch (const Error& error) {
    return News{false, error.what()};
  }
  if (news.text == text_) return std::nullopt;
  text_ = news.text;
  return news;
}

}  // namespace amaxscope

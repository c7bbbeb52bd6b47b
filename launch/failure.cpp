#include "launch/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "core/terminal_text.hpp"

namespace amaxscope::launch {

namespace {

/// "some/file.yaml:12:7: ..."
bool begins_with_place(std::string_view message) {
  const std::string_view line = message.substr(0, message.find('\n'));
  for (std::size_t colon = line.find(':'); colon != std::string_view::npos;
       colon = line.find(':', colon + 1)) {
    std::size_t at = colon;
    int numbers = 0;
    while (numbers < 2 && at < line.size() && line[at] == ':') {
      const std::size_t first = at + 1;
      at = first;
      while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0) ++at;
      if (at == first) break;
      ++numbers;
    }
    if (numbers == 2 && line.substr(at).starts_with(": ")) return true;
  }
  return false;
}

}  // namespace

Failure describe(const std::exception_ptr& exception) noexcept {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.is_bad_input() ? kBadInput : kAnswerIsNo, terminal_text(error.what())};
  } catch (const std::bad_alloc&) {
    return {kAnswerIsNo, "out of memory"};
  } catch (const std::exception& error) {
    return {kAnswerIsNo, terminal_text(error.what())};
  } catch (...) {
    return {kAnswerIsNo, "unknown exception"};
  }
}

std::string error_lines(std::string_view message) {
  std::string lines(begins_with_place(message) ? "" : "amaxscope: ");
  lines += message;
  if (!lines.ends_with('\n')) lines += '\n';
  return lines;
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i != 0) text += ", ";
    if (last - i >= 2) {
      text += fmt::format("{}-{}", ranks[i], ranks[last]);
      i = last + 1;
    } else {
      text += fmt::format("{}", ranks[i]);
      ++i;
    }
  }
  return text;
}

std::string job_error_lines(const std::vector<Failure>& by_rank) {
  std::vector<std::pair<std::string, std::vector<int>>> messages;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank].status == kDone) continue;
    auto known =
        std::ranges::find(messages, by_rank[rank].message, [](const auto& entry) { return entry.first; });
    if (known == messages.end()) known = messages.insert(messages.end(), {by_rank[rank].message, {}});
    known->second.push_back(static_cast<int>(rank));
  }
  std::string lines;
  for (const auto& [message, ranks] : messages) {
    if (ranks.size() == by_rank.size()) {
      lines += error_lines(message);
    } else if (message.find('\n') != std::string::npos) {
      lines += fmt::format("amaxscope: {}:\n{}", rank_list(ranks), error_lines(message));
    } else {
      lines += fmt::format("amaxscope: {}: {}\n", rank_list(ranks), message);
    }
  }
  return lines;
}

}  // namespace amaxscope::launch

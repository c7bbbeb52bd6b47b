#include "collectives/inquiry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>

namespace amaxscope {

namespace {

// "?7 call 7: max amax": a kind, the sequence number, what is waited in.
constexpr char kAsks = '?';
constexpr char kSays = '!';
constexpr std::chrono::milliseconds kPause{2};

std::optional<Inquiry::Answer> parse(std::string_view text) {
  if (text.empty() || (text.front() != kAsks && text.front() != kSays)) return std::nullopt;
  Inquiry::Answer answer;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data() + 1, end, answer.sequence);
  if (error != std::errc() || after == end || *after != ' ') return std::nullopt;
  answer.call.assign(after + 1, end);
  return answer;
}

}  // namespace

void Inquiry::send(int to, char kind, const Answer& own) {
  channel_->send(to, fmt::format("{}{} {}", kind, own.sequence, own.call));
}

void Inquiry::answer(const Answer& own) {
  while (const std::optional<SideMessage> message = channel_->receive()) {
    std::optional<Answer> said = parse(message->text);
    if (!said) continue;
    known_.insert_or_assign(message->from, std::move(*said));
    if (message->text.front() == kAsks) send(message->from, kSays, own);
  }
}

const std::map<int, Inquiry::Answer>& Inquiry::ask(std::span<const int> ranks, const Answer& own,
                                                   std::chrono::milliseconds patience, const Clock& clock) {
  answer(own);
  for (const int rank : ranks) send(rank, kAsks, own);
  const auto start = clock.steady_now();
  const auto answered = [&](int rank) { return known_.contains(rank); };
  while (!std::ranges::all_of(ranks, answered) && clock.steady_now() - start < patience) {
    std::this_thread::sleep_for(kPause);
    answer(own);
  }
  return known_;
}

}  // namespace amaxscope

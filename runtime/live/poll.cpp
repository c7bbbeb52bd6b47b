#include "runtime/live/poll.hpp"

#include <array>

#include "collectives/exchange.hpp"
#include "core/error.hpp"

namespace amaxscope {

Poll::Answer Poll::exchange(const std::string& own, std::uint32_t number, std::int64_t iteration) {
  AMAXSCOPE_CHECK(own.size() <= kLongestText, ErrorCode::kInternal,
                  "{} bytes to say to the other ranks, at most {}", own.size(), kLongestText);
  guard_.set_iteration(iteration);
  std::array<std::uint32_t, 2> words = {static_cast<std::uint32_t>(own.size()), number};
  guard_.reduce_max(words, words.size(), {.what = "poll"});
  Answer answer{.texts = {}, .number = words[1]};
  if (words[0] == 0) return answer;

  std::vector<std::uint32_t> slots(slot_words(words[0]) * static_cast<std::size_t>(guard_.group().size()));
  write_slot(slots, guard_.group(), own);
  guard_.reduce_max(slots, slots.size(), {.what = "what ranks have to say"});
  answer.texts = read_slots(slots, guard_.group());
  return answer;
}

}  // namespace amaxscope

#include "runtime/live/poll.hpp"

#include <array>
#include <cstring>

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

  // Each rank writes into its own zeroed slot, so that MAX is the list of all. A slot ends with a zero byte.
  const std::size_t slot = words[0] / sizeof(std::uint32_t) + 1;
  const auto ranks = static_cast<std::size_t>(guard_.group().size());
  std::vector<std::uint32_t> slots(slot * ranks);
  std::memcpy(&slots[slot * static_cast<std::size_t>(guard_.group().rank())], own.data(), own.size());
  guard_.reduce_max(slots, slots.size(), {.what = "what ranks have to say"});
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    answer.texts.emplace_back(reinterpret_cast<const char*>(&slots[slot * rank]));
  }
  return answer;
}

}  // namespace amaxscope

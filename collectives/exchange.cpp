#include "collectives/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace amaxscope {

std::vector<std::string> all_gather_text(Communicator& group, const std::string& text,
                                         const CollectiveTag& tag) {
  const auto ranks = static_cast<std::int64_t>(group.size());
  Tensor own_size = Tensor::of<std::int64_t>({static_cast<std::int64_t>(text.size())}, {1});
  Tensor sizes(DType::kI64, {ranks});
  group.all_gather(own_size, sizes, tag);
  // Texts travel padded to the longest: all ranks give equally many bytes.
  const std::span<const std::int64_t> lengths = std::as_const(sizes).values<std::int64_t>();
  const std::int64_t longest = *std::ranges::max_element(lengths);
  Tensor own(DType::kU8, {longest});
  std::ranges::copy(text, own.values<std::uint8_t>().begin());
  Tensor all(DType::kU8, {ranks, longest});
  group.all_gather(own, all, tag);
  std::vector<std::string> result;
  const std::span<const std::uint8_t> bytes = std::as_const(all).values<std::uint8_t>();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto part = bytes.subspan(static_cast<std::size_t>(rank * longest),
                                    static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
    result.emplace_back(part.begin(), part.end());
  }
  return result;
}

std::string broadcast_text(Communicator& group, const std::string& text, int root, const CollectiveTag& tag) {
  Tensor size = Tensor::of<std::int64_t>({static_cast<std::int64_t>(text.size())}, {1});
  group.broadcast(size, root, tag);
  Tensor bytes(DType::kU8, {size.values<std::int64_t>()[0]});
  if (group.rank() == root) std::ranges::copy(text, bytes.values<std::uint8_t>().begin());
  group.broadcast(bytes, root, tag);
  const std::span<const std::uint8_t> received = std::as_const(bytes).values<std::uint8_t>();
  return {received.begin(), received.end()};
}

std::size_t slot_words(std::size_t longest_text) noexcept { return longest_text / sizeof(std::uint32_t) + 1; }

void write_slot(std::span<std::uint32_t> slots, const Communicator& group, const std::string& own) {
  const std::size_t words = slots.size() / static_cast<std::size_t>(group.size());
  std::memcpy(slots.subspan(static_cast<std::size_t>(group.rank()) * words, words).data(), own.data(),
              own.size());
}

std::vector<std::string> read_slots(std::span<const std::uint32_t> slots, const Communicator& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t words = slots.size() / ranks;
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(slots.subspan(rank * words, words).data()));
  }
  return texts;
}

bool all_agree(Communicator& group, bool mine, const CollectiveTag& tag) {
  Tensor vote = Tensor::of<std::uint32_t>({static_cast<std::uint32_t>(mine)}, {1});
  group.all_reduce(vote, ReduceOp::kMin, tag);
  return vote.values<std::uint32_t>()[0] == 1;
}

std::string rank_list(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first != 0) text += ", ";
    text += fmt::format("{}", ranks[first]);
    if (last > first) text += fmt::format("{}{}", last == first + 1 ? ", " : "-", ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace amaxscope

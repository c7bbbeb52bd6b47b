#include "collectives/amax_reducer.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace amaxscope {

AmaxReducer::AmaxReducer(CollectiveGuard& guard, BeforeFirst before_first)
    : guard_(guard), before_first_(std::move(before_first)) {}

void AmaxReducer::reduce(std::span<std::uint32_t> amaxes, const CollectiveTag& tag) {
  if (guard_.group().size() == 1) return;
  if (before_first_) {
    before_first_();  // when it throws, the next call asks again
    before_first_ = {};
  }
  std::size_t done = 0;
  do {
    std::array<std::uint32_t, CollectiveGuard::kFramePayload> frame{};
    const auto part = amaxes.subspan(done, std::min(frame.size(), amaxes.size() - done));
    std::ranges::copy(part, frame.begin());
    guard_.reduce_max(frame, amaxes.size(), tag);
    std::copy_n(frame.begin(), part.size(), part.begin());
    done += part.size();
  } while (done < amaxes.size());
}

}  // namespace amaxscope

#include "collectives/amax_reducer.hpp"

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
  FlightRecorder* const flight = guard_.group().flight().get();
  if (flight != nullptr) flight->set_where("the amax of", tag.layer, tag.tensor);
  guard_.reduce_max_in_frames(amaxes, tag);
  if (flight != nullptr) flight->set_where("training, after the amax of", tag.layer, tag.tensor);
}

}  // namespace amaxscope

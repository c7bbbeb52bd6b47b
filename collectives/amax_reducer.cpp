#include "collectives/amax_reducer.hpp"

#include <utility>

#include "core/error.hpp"

namespace amaxscope {

AmaxReducer::AmaxReducer(CollectiveGuard& guard, BeforeFirst before_first)
    : guard_(guard), before_first_(std::move(before_first)) {}

void AmaxReducer::settle() {
  if (!before_first_) return;
  before_first_();  // when it throws, the next call asks again
  before_first_ = {};
}

void AmaxReducer::reduce(std::span<std::uint32_t> amaxes, const CollectiveTag& tag) {
  if (guard_.group().size() == 1) return;
  settle();
  FlightRecorder* const flight = guard_.group().flight().get();
  if (flight != nullptr) flight->set_where("the amax of", tag.layer, tag.tensor);
  guard_.reduce_max_in_frames(amaxes, tag);
  if (flight != nullptr) flight->set_where("training, after the amax of", tag.layer, tag.tensor);
}

void AmaxReducer::reduce_tensors(std::span<const MutableTensorView> amaxes, const CollectiveTag& tag) {
  for (const MutableTensorView& amax : amaxes) {
    AMAXSCOPE_CHECK(amax.dtype() == DType::kU32, ErrorCode::kTensor,
                    "{}: amaxes are reduced as bit patterns of type u32, got {}", tag.what,
                    to_string(amax.dtype()));
  }
  if (guard_.group().size() == 1) return;
  settle();
  AMAXSCOPE_CHECK(!guard_.broken(), ErrorCode::kInternal,
                  "{}: this group's debug traffic failed before and cannot go on", tag.what);
  guard_.group().all_reduce_each(amaxes, ReduceOp::kMax, tag);
}

}  // namespace amaxscope

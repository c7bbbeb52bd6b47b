#include "collectives/amax_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/fnv.hpp"

namespace amaxscope {

namespace {

std::string key_of(std::string_view layer, std::string_view tensor) {
  return fmt::format("{} {}", layer, tensor);
}

/// Of some 64 elements spread over a host tensor: an optimizer step changes them.
std::uint64_t sample_of(const TensorView& x) {
  constexpr std::int64_t kElements = 64;
  Fnv1a hash;
  if (x.device().kind != DeviceKind::kCpu || x.numel() == 0 || !x.contiguous()) return hash.value();
  const std::size_t width = size_bytes(x.dtype(), 1);
  const auto* const bytes = static_cast<const char*>(x.data());
  const std::int64_t count = std::min(kElements, x.numel());
  for (std::int64_t i = 0; i < count; ++i) {
    hash.add(std::string_view(bytes + static_cast<std::size_t>(x.numel() * i / count) * width, width));
  }
  return hash.value();
}

}  // namespace

AmaxReducer::AmaxReducer(CollectiveGuard& guard, BeforeFirst before_first)
    : guard_(guard), before_first_(std::move(before_first)) {}

void AmaxReducer::settle() {
  if (!before_first_) return;
  before_first_();  // when it throws, the next call asks again
  before_first_ = {};
}

void AmaxReducer::reduce(std::span<std::uint32_t> amaxes, const CollectiveTag& tag) {
  if (guard_.group().size() == 1) return;
  if (const Known* const known = find(tag.layer, tag.tensor)) return take(*known, amaxes);
  settle();
  FlightRecorder* const flight = guard_.group().flight().get();
  if (flight != nullptr) flight->set_where("the amax of", tag.layer, tag.tensor);
  guard_.reduce_max_in_frames(amaxes, tag);
  if (flight != nullptr) flight->set_where("training, after the amax of", tag.layer, tag.tensor);
}

void AmaxReducer::reduce_ahead(std::span<const Settled> tensors, const CollectiveTag& tag) {
  forget();
  if (guard_.group().size() == 1 || tensors.empty()) return;
  std::vector<std::uint32_t> amaxes;
  amaxes.reserve(tensors.size());
  for (const Settled& tensor : tensors) amaxes.push_back(tensor.amax);
  reduce(amaxes, tag);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ahead_.insert_or_assign(key_of(tensors[i].layer, tensors[i].tensor),
                            Known{.own = tensors[i], .sample = sample_of(tensors[i].x), .amax = amaxes[i]});
  }
}

const AmaxReducer::Known* AmaxReducer::find(std::string_view layer, std::string_view tensor) const {
  if (ahead_.empty()) return nullptr;
  const auto found = ahead_.find(key_of(layer, tensor));
  return found == ahead_.end() ? nullptr : &found->second;
}

std::optional<std::uint32_t> AmaxReducer::known(std::string_view layer, std::string_view tensor,
                                                const TensorView& x) const {
  const Known* const known = find(layer, tensor);
  if (known == nullptr) return std::nullopt;
  const TensorView& given = known->own.x;
  AMAXSCOPE_CHECK(
      x.data() == given.data() && x.dtype() == given.dtype() && x.shape() == given.shape() &&
          sample_of(x) == known->sample,
      ErrorCode::kUsage,
      "layer {}: {} is not what was said to be final in this iteration; say so when no weight will "
      "change before the next step, or not at all",
      layer, tensor);
  return known->amax;
}

void AmaxReducer::take(const Known& known, std::span<std::uint32_t> amaxes) {
  for (std::uint32_t& amax : amaxes) {
    AMAXSCOPE_CHECK(
        amax == known.own.amax || amax == 0, ErrorCode::kUsage,
        "layer {}: the amax of {} is {:#010x} now and was {:#010x} when it was said to be final in "
        "this iteration",
        known.own.layer, known.own.tensor, amax, known.own.amax);
    // 0 stands for a direction that is not made, unless this rank's part is nothing but zeros.
    if (amax == known.own.amax) amax = known.amax;
  }
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

void AmaxReducer::reduce_where_it_is(const MutableTensorView& amaxes, const CollectiveTag& tag) {
  if (amaxes.device().kind == DeviceKind::kCpu) return reduce(amaxes.values<std::uint32_t>(), tag);
  reduce_tensors({&amaxes, 1}, tag);
}

}  // namespace amaxscope

// Batched MAX of amaxes over a group, for features that make a scale for a tensor spread over ranks.
#pragma once

#include <functional>
#include <span>

#include "collectives/collective_guard.hpp"

namespace amaxscope {

class AmaxReducer {
 public:
  /// Runs once before the first reduction (the session compares its registrations there); may be empty.
  using BeforeFirst = std::function<void()>;

  explicit AmaxReducer(CollectiveGuard& guard, BeforeFirst before_first = {});

  [[nodiscard]] Communicator& group() const noexcept { return guard_.group(); }

  /// amaxes[i] = MAX over the group: CollectiveGuard::kFramePayload values a collective, none when the group
  /// has one rank. Every rank of the group calls it, ranks with an empty shard with 0. Blocks; errors as
  /// CollectiveGuard::reduce_max.
  void reduce(std::span<std::uint32_t> amaxes, const CollectiveTag& tag);

  /// The same for amaxes where kernels have put them and look for them: u32 tensors (bit patterns) on one
  /// device and stream, reduced in place in one call. On a device the host waits for nothing, so these calls
  /// carry no signature: ranks that are in different ones are found by the next call that carries one, or by
  /// its deadline. Throws Error(kTensor) for another type, Error(kInternal) when the guard is broken, and
  /// what the group throws.
  void reduce_tensors(std::span<const MutableTensorView> amaxes, const CollectiveTag& tag);

 private:
  void settle();

  CollectiveGuard& guard_;
  BeforeFirst before_first_;
};

}  // namespace amaxscope

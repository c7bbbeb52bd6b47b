// Batched MAX of amaxes over a group, for features that make a scale for a tensor spread over ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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
  /// CollectiveGuard::reduce_max. Of a tensor that reduce_ahead() was given, by the tag's layer and tensor,
  /// the maxima are known already: local then, and Error(kUsage) for a value that is neither that tensor's
  /// amax nor 0.
  void reduce(std::span<std::uint32_t> amaxes, const CollectiveTag& tag);

  /// A tensor that does not change before forget(), and this rank's part of its amax.
  struct Settled {
    std::string layer;
    std::string tensor;
    TensorView x;
    std::uint32_t amax = 0;
  };
  /// Reduces the amaxes of these in one call, so that reduce() and known() need not talk to anybody for any
  /// of them. Every rank of the group names the same tensors in the same order. Blocks and fails as reduce().
  void reduce_ahead(std::span<const Settled> tensors, const CollectiveTag& tag);
  /// The amax over the group of a tensor that reduce_ahead() was given; none for others. Local. Error(kUsage)
  /// when x is not what was given there, as far as its memory, type, shape and some 64 elements tell.
  [[nodiscard]] std::optional<std::uint32_t> known(std::string_view layer, std::string_view tensor,
                                                   const TensorView& x) const;
  /// What reduce_ahead() was given may change from now on.
  void forget() noexcept { ahead_.clear(); }

  /// The same for amaxes where kernels have put them and look for them: u32 tensors (bit patterns) on one
  /// device and stream, reduced in place in one call. On a device the host waits for nothing, so these calls
  /// carry no signature: ranks that are in different ones are found by the next call that carries one, or by
  /// its deadline. Throws Error(kTensor) for another type, Error(kInternal) when the guard is broken, and
  /// what the group throws.
  void reduce_tensors(std::span<const MutableTensorView> amaxes, const CollectiveTag& tag);

  /// The one of the two that fits a contiguous u32 tensor of amaxes: on the host with a signature, on a
  /// device without the host.
  void reduce_where_it_is(const MutableTensorView& amaxes, const CollectiveTag& tag);

 private:
  /// Of a tensor that was reduced ahead.
  struct Known {
    Settled own;
    std::uint64_t sample = 0;  ///< of its elements
    std::uint32_t amax = 0;    ///< over the group
  };

  void settle();
  [[nodiscard]] const Known* find(std::string_view layer, std::string_view tensor) const;
  /// The maxima of a known tensor in place of this rank's.
  static void take(const Known& known, std::span<std::uint32_t> amaxes);

  CollectiveGuard& guard_;
  BeforeFirst before_first_;
  std::map<std::string, Known, std::less<>> ahead_;  ///< by "layer tensor"
};

}  // namespace amaxscope

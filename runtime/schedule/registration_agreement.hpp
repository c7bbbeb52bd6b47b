// Whether the ranks of a group have registered the same things, compared before they rely on it.
// One agreement watches one group. Used by the session's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/collective_guard.hpp"

namespace amaxscope {

/// What ranks compare: one readable line for each registered (layer, tensor, layout, feature, statistic,
/// schedule), in any order. Grows only.
class RegistrationList {
 public:
  void add(std::string line);
  /// Sorted.
  [[nodiscard]] const std::vector<std::string>& lines() const;
  [[nodiscard]] std::uint64_t digest() const;
  /// Changes with every add().
  [[nodiscard]] std::size_t version() const noexcept { return lines_.size(); }

 private:
  mutable std::vector<std::string> lines_;
  mutable bool sorted_ = true;
};

class RegistrationAgreement {
 public:
  /// The guard carries kFramePayload-word frames and must outlive the agreement.
  RegistrationAgreement(CollectiveGuard& guard, const RegistrationList& list) : guard_(guard), list_(list) {}

  [[nodiscard]] bool settled() const noexcept { return agreed_version_ == list_.version(); }
  /// Compares the digests when something was registered since the last time: one collective. Throws
  /// Error(kMismatch) on every rank with what is on which ranks only; blocks up to the guard's deadline.
  void settle();

 private:
  CollectiveGuard& guard_;
  const RegistrationList& list_;
  std::size_t agreed_version_ =
      static_cast<std::size_t>(-1);  ///< never: the first settle() compares even nothing
};

}  // namespace amaxscope

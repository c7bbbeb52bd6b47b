// Whether the ranks of a group hold the same thing: a 64-bit fingerprint under MAX together with its
// complement, so that all of them are equal exactly when max(f) == ~max(~f). When they are not, each rank's
// fingerprint and a few words of its own are gathered, and a check explains what they mean.
// Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// What one rank had.
struct RankEvidence {
  int rank = 0;      ///< of the world
  bool ran = false;  ///< false: the rank fed nothing and takes no part
  std::uint64_t fingerprint = 0;
  std::span<const std::uint32_t> words;  ///< as fed, zeros behind
};

class EqualityAccumulator final : public StatAccumulator {
 public:
  /// From what the ranks had (only called when they differ) to what it means; none: it means nothing. Called
  /// on every rank alike. layer, tensor, phase and iteration are filled in by the caller.
  using Explain = std::function<std::optional<Finding>(std::span<const RankEvidence>)>;
  EqualityAccumulator(std::string id, std::size_t evidence_words, Explain explain);

  /// Fingerprints of one step are combined in the order they are fed; words beyond evidence_words are left
  /// out.
  void feed(std::uint64_t fingerprint, std::span<const std::uint32_t> words);

  [[nodiscard]] std::string id() const override { return id_; }
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override { return 4; }
  void pack_max(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::size_t detail_words(const ReducedStat& reduced) const override;
  void pack_details(std::span<std::uint32_t> out) const override;
  /// Once: what is unequal stays unequal, and is said when it is seen first.
  [[nodiscard]] std::vector<Finding> findings(const ReducedStat& reduced) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat&) const override { return {}; }

 private:
  std::string id_;
  std::size_t evidence_words_;
  Explain explain_;
  std::uint64_t fingerprint_ = 0;
  std::vector<std::uint32_t> words_;
  mutable bool reported_ = false;
};

/// Ranks that have the same fingerprint, the largest set first (the lowest rank decides between equal ones).
std::vector<std::vector<int>> rank_sets(std::span<const RankEvidence> evidence);
/// "ranks 0,2 against rank 1": every set.
std::string sets_text(const std::vector<std::vector<int>>& sets);
/// "2.5 on rank 3" for each set, value() of one of its ranks.
std::vector<std::string> values_of_sets(const std::vector<std::vector<int>>& sets,
                                        std::span<const RankEvidence> evidence,
                                        const std::function<std::string(const RankEvidence&)>& value);
/// The ranks outside of the largest set: those to look at first. With two sets of one size the second.
std::vector<int> odd_ones_out(const std::vector<std::vector<int>>& sets);

}  // namespace amaxscope

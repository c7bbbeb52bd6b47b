// The kinds of planted faults: what each is called, which keys it takes, when and where it strikes. A table
// of constants. P01 to P20 are the numbers that the project's bench of diagnoses knows them by.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace amaxscope::megatron {

enum class FaultKind : std::uint8_t {
  kSkipAmaxReduction,
  kScaleOff,
  kNan,
  kAmaxOverDp,
  kStaleWeight,
  kStaleColumnwise,
  kRecomputeInBf16,
  kE5m2Gradients,
  kScaleRoundedDown,
  kGrowChannel,
  kFixedRoundingSeed,
  kSkipGradientReduction,
  kOverwriteColumnwise,
  kNoMasterWeights,
  kAdamLag,
};

std::string_view to_string(FaultKind kind) noexcept;  ///< as on the command line: "skip_amax_reduction"

/// The keys of a fault, in the order in which messages list them.
enum class FaultKey : std::uint8_t {
  kLayer,
  kRank,
  kIteration,
  kTensor,
  kExponent,
  kIndex,
  kMicrobatch,
  kChannel,
  kParameter,
};
inline constexpr std::array<std::string_view, 9> kFaultKeys = {
    "layer", "rank", "iteration", "tensor", "k", "index", "microbatch", "channel", "parameter"};

/// A set of keys.
class FaultKeys {
 public:
  constexpr FaultKeys() = default;
  template <class... Keys>
  constexpr explicit FaultKeys(FaultKey first, Keys... rest) : bits_((bit(first) | ... | bit(rest))) {}
  [[nodiscard]] constexpr bool has(FaultKey key) const noexcept { return (bits_ & bit(key)) != 0; }
  [[nodiscard]] std::string names() const;  ///< "layer, rank"

 private:
  static constexpr unsigned bit(FaultKey key) noexcept { return 1U << static_cast<unsigned>(key); }
  unsigned bits_ = 0;
};

enum class FaultTime : std::uint8_t {
  kAlways,  ///< it is built in; no iteration can be given
  kAt,      ///< in the iteration that is given; none: in every one
  kSince,   ///< from that iteration on; none: from the first on
};

enum class FaultTensors : std::uint8_t { kNone, kOperands, kAll };

struct FaultKindRow {
  FaultKind kind;
  std::string_view name;
  std::string_view id;  ///< "P02"; empty: it has none
  FaultKeys keys;
  FaultKeys required;
  FaultTime time;
  FaultTensors tensors;  ///< what `tensor` may be
  std::string_view doc;
};

std::span<const FaultKindRow> fault_kinds() noexcept;
const FaultKindRow& row_of(FaultKind kind) noexcept;

/// All kinds with their keys, one or two lines each, for a command's help.
std::string fault_help();

}  // namespace amaxscope::megatron
